"""A user's own model of pictures, an ONNX file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.changes.change import Change
from omdml.streams.describers.onnx_model import OnnxModel, Preparation, read_model
from omdml.streams.describers.sources import Sources
from tests.support.catalogues.changing import change
from tests.support.catalogues.products import drawn, write_shop


def model_bytes(shape=(1, 3, 32, 32), kind=TensorProto.FLOAT):
    """A model whose vector is the mean of each channel, times a matrix (3, 5)."""
    axes = [1, 2] if shape[-1] == 3 else [2, 3]
    weights = numpy_helper.from_array(np.arange(15, dtype=np.float32).reshape(3, 5), "weights")
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["picture"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["numbers", "axes"], ["means"], keepdims=0),
            helper.make_node("MatMul", ["means", "weights"], ["vector"]),
        ],
        "means",
        [helper.make_tensor_value_info("picture", kind, shape)],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [1, 5])],
        [weights, numpy_helper.from_array(np.array(axes, np.int64), "axes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("normalize", "expected"),
    [
        ("none", [255, 51, 0]),
        ("unit", [1, 0.2, 0]),
        ("signed", [1, -0.6, -1]),
        ("imagenet", [(1 - 0.485) / 0.229, (0.2 - 0.456) / 0.224, -0.406 / 0.225]),
    ],
)
@pytest.mark.parametrize("shape", [(1, 3, 32, 48), (1, 32, 48, 3), ("n", 3, "h", "w")])
def test_the_model_sees_the_picture_as_the_preparation_says(normalize, expected, shape):
    model = OnnxModel(model_bytes(shape), Preparation(normalize=normalize))
    vector = model.describe(Image.new("RGB", (70, 90), (255, 51, 0)))
    np.testing.assert_allclose(vector, expected @ np.arange(15.0).reshape(3, 5), rtol=1e-4)
    assert (model.height, model.width) == ((224, 224) if "h" in shape else (32, 48))


def test_models_that_cannot_be_used_are_refused(tmp_path):
    (tmp_path / "no.onnx").write_bytes(b"no model")
    for make, message in (
        (lambda: read_model(tmp_path / "no.onnx", Preparation()), r"no\.onnx: not an ONNX model that"),
        (lambda: read_model(tmp_path / "gone.onnx", Preparation()), "cannot be read"),
        (lambda: OnnxModel(model_bytes((1, 3, 32, 32)), Preparation(size=64)), "pixels, --onnx-size says 64"),
        (lambda: OnnxModel(model_bytes((1, 3, 900, 900)), Preparation()), "expected at most 512 a side"),
        (lambda: OnnxModel(model_bytes(kind=TensorProto.UINT8), Preparation()), "expected one of float32"),
    ):  # fmt: skip
        with pytest.raises(CatalogueError, match=message):
            make()


def test_its_vectors_are_a_modality_and_added_pictures_get_the_same(tmp_path):
    _, sources = write_shop(tmp_path)
    (tmp_path / "m.onnx").write_bytes(model_bytes())
    with_model = Sources(sources.pictures, (), tmp_path / "m.onnx", Preparation(normalize="unit"))
    catalogue = build_catalogue(tmp_path / "c", [], sources=with_model, mapped=True)
    (tmp_path / "m.onnx").unlink()
    assert catalogue.dims["onnx"] == 5
    product, data = drawn()[4]
    change(catalogue, Change(id="again", picture=data))
    built, added = catalogue.rows([product.id, "again"])
    np.testing.assert_array_equal(catalogue.features["onnx"][added], catalogue.features["onnx"][built])
