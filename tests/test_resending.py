"""Sending the events of dead letters again."""

from __future__ import annotations

import pytest

from omdml.errors import SourceError
from workers.config import FileLog
from workers.wiring import open_sender


def test_only_one_at_a_time_sends_letters_of_files_again(tmp_path):
    (tmp_path / "feedback").mkdir()
    log = FileLog(path=str(tmp_path / "feedback"), letters=str(tmp_path / "letters"))
    sender = open_sender(log)
    with pytest.raises(SourceError, match="another omdml letters resend is at work"):
        open_sender(log)
    sender.close()
    open_sender(log).close()
