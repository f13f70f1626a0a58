"""A model of the user's own that turns a picture into a vector: an ONNX file, run by onnxruntime on the processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import read_regular
from omdml.streams.catalogues.tables.table import MAX_DIM
from omdml.streams.describers.pictures import WORKING_SIDE, Pixels, stretched

MODALITY = "onnx"
MAX_MODEL_BYTES = 512 << 20
INSTALL = "pip install 'omdml[onnx]'"
# Means and deviations of red, green and blue, from 0 to 1, that models trained on ImageNet expect.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Preparation(msgspec.Struct, frozen=True):
    """What is done with a picture before the model sees it.

    ``size`` is the side in pixels to which the picture is stretched. 0 takes it from the model's input, or 224 if the
    input leaves it open. ``normalize`` is ``imagenet`` (channels from 0 to 1, minus ImageNet's means, divided by its
    deviations), ``unit`` (0 to 1), ``signed`` (-1 to 1) or ``none`` (0 to 255).
    """

    size: int = 0
    normalize: str = "imagenet"


class OnnxModel:
    """A model that takes one picture and gives one vector.

    It has one input of float32, (1, 3, height, width) or (1, height, width, 3). Its first output is the vector; its
    shape does not matter.

    Parameters
    ----------
    data
        The bytes of the model's file. It must not refer to other files.
    preparation
        See :class:`Preparation`.

    Raises
    ------
    CatalogueError
        onnxruntime is not installed, the bytes are not a model, or its input is of another type or shape.
    """

    def __init__(self, data: bytes, preparation: Preparation) -> None:
        self.data, self.preparation = data, preparation
        self._session = _session(data)
        tensors = self._session.get_inputs()
        if len(tensors) != 1 or tensors[0].type != "tensor(float)" or len(tensors[0].shape) != 4:
            inputs = ", ".join(f"{tensor.name} {tensor.type} {tensor.shape}" for tensor in tensors)
            raise CatalogueError(f"the ONNX model has inputs {inputs}, expected one of float32 (1, 3, height, width)")
        self._name, shape = tensors[0].name, tensors[0].shape
        self._channels_last = shape[3] == 3 and shape[1] != 3
        height, width = shape[1:3] if self._channels_last else shape[2:4]
        default_side = preparation.size or 224
        self.height, self.width = (
            side if isinstance(side, int) and side > 0 else default_side for side in (height, width)
        )
        if preparation.size and (self.height, self.width) != (preparation.size, preparation.size):
            raise CatalogueError(
                f"the ONNX model takes {self.height} x {self.width} pixels, --onnx-size says {preparation.size}: leave "
                "it out"
            )
        if max(self.height, self.width) > WORKING_SIDE:
            raise CatalogueError(
                f"the ONNX model takes {self.height} x {self.width} pixels, expected at most {WORKING_SIDE} a side"
            )

    def describe(self, image: Any) -> NDArray[np.float64]:
        """The vector (d,) of a picture; raises CatalogueError if the model fails, or a number is not finite."""
        ready = self._prepared(stretched(image, self.width, self.height))
        try:
            output = self._session.run(None, {self._name: ready[None]})[0]
            vector = np.asarray(output, np.float64).ravel()
        # onnxruntime has error classes of its own for each of its codes.
        except Exception as error:
            raise CatalogueError(f"the ONNX model failed on a picture: {error}") from error
        if not 1 <= vector.size <= MAX_DIM or not np.isfinite(vector).all():
            raise CatalogueError(
                f"the ONNX model gave {vector.size:,} numbers, {np.isfinite(vector).sum():,} of them finite; "
                f"expected 1 to {MAX_DIM:,}, all finite"
            )
        return vector

    def _prepared(self, pixels: Pixels) -> NDArray[np.float32]:
        channels: NDArray[np.float32] = pixels.astype(np.float32)
        match self.preparation.normalize:
            case "imagenet":
                mean, deviation = (np.array(part, np.float32) for part in IMAGENET)
                channels = (channels / np.float32(255) - mean) / deviation
            case "unit":
                channels = channels / np.float32(255)
            case "signed":
                channels = channels / np.float32(127.5) - np.float32(1)
        return channels if self._channels_last else np.ascontiguousarray(channels.transpose(2, 0, 1))


def read_model(path: str | Path, preparation: Preparation) -> OnnxModel:
    """The model in a file; raises CatalogueError."""
    try:
        data = read_regular(path, MAX_MODEL_BYTES)
    except OSError as error:
        raise CatalogueError(f"{path}: the ONNX model cannot be read ({error.strerror})") from error
    try:
        return OnnxModel(data, preparation)
    except CatalogueError as error:
        raise CatalogueError(f"{path}: {error}") from error


def _session(data: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise CatalogueError(f"an ONNX model needs onnxruntime, which is not installed: {INSTALL}") from error
    options = onnxruntime.SessionOptions()
    # Pictures are described by several processes, and the order of sums must not depend on how many threads there are.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise CatalogueError(f"not an ONNX model that onnxruntime can run ({error})") from error
