"""Transforms of images, beside Pillow's and plain NumPy, in all three forms of an image; tokens and vocabularies."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.data import DataLoader
from hybridml.data import transforms as T
from hybridml.data.transforms import geometry

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (37, 52, 3), np.uint8)
pillow = pytest.importorskip("PIL.Image")


def smooth(height: int, width: int) -> np.ndarray:
    """An image without sharp edges, where filters that differ by a rounding give nearly the same."""
    y, x = np.mgrid[:height, :width]
    planes = [128 + 100 * np.sin(x / 9 + k) * np.cos(y / 7 - k) for k in range(3)]
    return np.stack(planes, -1).astype(np.uint8)


def planes(pixels: np.ndarray) -> hm.Tensor:
    return hm.asarray(np.ascontiguousarray(np.moveaxis(pixels, -1, 0)))


def forms(transform: Any, pixels: np.ndarray) -> list[np.ndarray]:
    """The result (height, width, channels) for each form of an image, with the same random numbers."""
    found = []
    for image in (pixels, planes(pixels), pillow.fromarray(pixels)):
        hm.manual_seed(3)
        made = transform(image)
        assert type(made) is type(image) or isinstance(made, pillow.Image)
        found.append(np.moveaxis(made.numpy(), 0, -1) if isinstance(made, hm.Tensor) else np.asarray(made))
    return found


ALIKE = {
    "center crop": T.CenterCrop((20, 31)),
    "center crop of more": T.CenterCrop(60),
    "pad": T.Pad((1, 2, 3, 4), fill=(9, 8, 7)),
    "pad, reflect": T.Pad((3, 5), padding_mode="reflect"),
    "crop": T.RandomCrop(24, padding=4),
    "crop of more": T.RandomCrop((50, 40), pad_if_needed=True, padding_mode="edge"),
    "flip": T.RandomHorizontalFlip(p=1.0),
    "upside down": T.RandomVerticalFlip(p=1.0),
    "rotation": T.RandomRotation(30, fill=5),
    "rotation, bilinear": T.RandomRotation((20, 80), interpolation="bilinear"),
    "jitter": T.ColorJitter(0.4, 0.4, 0.4, 0.3),
    "grey": T.Grayscale(3),
    "grey at random": T.RandomGrayscale(p=1.0),
    "erased": T.RandomErasing(p=1.0, value=(1, 2, 3)),
    "one of two": T.RandomChoice([T.CenterCrop(9), T.RandomVerticalFlip(1.0)]),
    "several": T.Compose([T.RandomCrop(30), T.RandomApply([T.RandomHorizontalFlip(1.0)], p=0.5)]),
}


@pytest.mark.parametrize("transform", ALIKE.values(), ids=ALIKE)
def test_all_forms_of_an_image_give_the_same(transform: Any) -> None:
    first, *others = forms(transform, PIXELS)
    assert first.dtype == np.uint8 and first.ndim == 3
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_to_tensor_and_normalize() -> None:
    x = T.ToTensor()(PIXELS)
    assert x.dtype == hm.float32 and x.shape == (3, 37, 52) and x.numpy().flags.c_contiguous
    np.testing.assert_array_equal(x.numpy(), np.moveaxis(PIXELS, -1, 0).astype(np.float32) / np.float32(255))
    assert (T.ToTensor()(pillow.fromarray(PIXELS)) == x).all()
    assert T.ToTensor()(PIXELS[..., 0]).shape == (1, 37, 52)
    assert T.ToTensor()(pillow.fromarray(PIXELS).convert("P")).shape == (3, 37, 52)
    assert T.ToTensor()(np.ones((2, 2), bool)).dtype == hm.float32
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    expected = (x.numpy() - np.float32(mean)[:, None, None]) / np.float32(std)[:, None, None]
    np.testing.assert_array_equal(T.Normalize(mean, std)(x).numpy(), expected)
    batch = hm.stack([x, x])
    assert T.Normalize(mean, std)(batch).shape == batch.shape


def test_dtypes_keep_their_range() -> None:
    x = T.ConvertImageDtype("float32")(PIXELS)
    np.testing.assert_allclose(x, PIXELS / 255, rtol=1e-6)
    np.testing.assert_array_equal(T.ConvertImageDtype("uint8")(x), PIXELS)
    assert T.ConvertImageDtype("float64")(x).dtype == np.float64


@pytest.mark.parametrize("size", [(20, 15), (80, 70), (37, 20), 16, (5, 90)])
def test_resize_is_pillows(size: Any) -> None:
    pixels = smooth(37, 52)
    expected = np.asarray(T.Resize(size)(pillow.fromarray(pixels))).astype(int)
    for made in forms(T.Resize(size), pixels)[:2]:
        assert made.shape == expected.shape
        assert np.abs(made.astype(int) - expected).max() <= 1  # Pillow rounds between the two axes
    noise = forms(T.Resize(size), PIXELS)
    assert np.abs(noise[0].astype(int) - noise[2]).max() <= 1
    floats = T.Resize(size)(planes(pixels).astype("float32") / 255)
    np.testing.assert_allclose(np.moveaxis(floats.numpy(), 0, -1), expected / 255, atol=1.1 / 255)


def test_sizes() -> None:
    assert T.Resize(10)(np.zeros((20, 41, 3))).shape == (10, 20, 3)
    assert T.Resize(10, max_size=15)(np.zeros((41, 20, 3))).shape == (15, 7, 3)
    assert T.Resize(4)(np.zeros((8, 8), np.uint8)).shape == (4, 4)
    assert T.Resize(2, "nearest")(np.arange(16).reshape(4, 4)).tolist() == [[0, 2], [8, 10]]
    assert T.Resize(8, antialias=False)(np.zeros((2, 16, 16, 3)).swapaxes(0, 0)[0]).shape == (8, 8, 3)
    assert T.Resize((3, 5))(hm.zeros((2, 3, 8, 8))).shape == (2, 3, 3, 5)


def test_rotations_by_quarters_are_exact_and_others_are_pillows() -> None:
    square = PIXELS[:37, :37]
    for quarters in range(4):
        angle = 90 * quarters
        for interpolation in geometry.INTERPOLATIONS:
            turned = T.RandomRotation((angle, angle), interpolation)(square)
            np.testing.assert_array_equal(turned, np.rot90(square, quarters))
    pixels = smooth(40, 60)
    turned = T.RandomRotation((25, 25))(pixels)
    expected = np.asarray(pillow.fromarray(pixels).rotate(25))
    assert (np.abs(turned.astype(int) - expected) > 12).mean() < 0.01  # the next pixel, where a half is rounded


def test_random_crops_come_from_everywhere() -> None:
    hm.manual_seed(0)
    image = np.arange(36).reshape(6, 6)
    corners = {int(T.RandomCrop(5)(image)[0, 0]) for _ in range(100)}
    assert corners == {0, 1, 6, 7}
    flips = [T.RandomHorizontalFlip()(image)[0, 0] for _ in range(200)]
    assert 60 < flips.count(0) < 140
    shapes = {T.RandomResizedCrop(4)._part(30, 50, np.random.default_rng(k))[2:] for k in range(50)}
    assert len(shapes) > 30 and all(0.07 < h * w / 1500 <= 1 and 0.7 < w / h < 1.4 for h, w in shapes)
    assert T.RandomResizedCrop(4)(np.zeros((2, 900, 3))).shape == (4, 4, 3)
    hm.manual_seed(1)
    first = T.RandomCrop(5)(image).tolist(), T.RandomRotation(50)(PIXELS).tolist()
    hm.manual_seed(1)
    assert (T.RandomCrop(5)(image).tolist(), T.RandomRotation(50)(PIXELS).tolist()) == first


@pytest.mark.parametrize(("name", "change"), [("Brightness", 0), ("Contrast", 1), ("Color", 2)])
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.7])
def test_colours_are_pillows(name: str, change: int, factor: float) -> None:
    from PIL import ImageEnhance

    arguments = [(1.0, 1.0)] * 3
    arguments[change] = (factor, factor)
    made = T.ColorJitter(*arguments)(PIXELS)
    expected = np.asarray(getattr(ImageEnhance, name)(pillow.fromarray(PIXELS)).enhance(factor))
    assert np.abs(made.astype(int) - expected).max() <= 2  # Pillow rounds the grey and the mean


def test_hue_goes_round() -> None:
    for shift, channels in ((1 / 3, [2, 0, 1]), (-1 / 3, [1, 2, 0])):
        np.testing.assert_array_equal(T.ColorJitter(hue=(shift, shift))(PIXELS), PIXELS[..., channels])
    x = PIXELS.astype(np.float32) / 255
    np.testing.assert_allclose(T.ColorJitter(hue=(0.5, 0.5))(T.ColorJitter(hue=(0.5, 0.5))(x)), x, atol=1e-5)
    grey = np.full((2, 2, 1), 7, np.uint8)
    assert (T.ColorJitter(hue=0.4)(grey) == 7).all()
    clear = np.concatenate([PIXELS, PIXELS[..., :1]], -1)
    assert (T.ColorJitter(brightness=(0.0, 0.0))(clear)[..., 3] == PIXELS[..., 0]).all()
    assert (T.RandomGrayscale(p=1.0)(clear) == np.dstack([T.Grayscale(3)(PIXELS), PIXELS[..., 0]])).all()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: T.Resize(0), hm.ArgumentError, "positive number"),
        (lambda: T.Resize((4, 5), max_size=9), hm.ArgumentError, "max_size"),
        (lambda: T.Resize(4, "cubic"), hm.ArgumentError, "nearest, bilinear"),
        (lambda: T.Pad((1, 2, 3)), hm.ArgumentError, "one, two or four"),
        (lambda: T.Pad(1, padding_mode="wrap"), hm.ArgumentError, "padding_mode"),
        (lambda: T.RandomCrop(50)(PIXELS), hm.ShapeError, "pad_if_needed"),
        (lambda: T.Normalize(0.5, 0.0), hm.ArgumentError, "std is 0"),
        (lambda: T.Normalize(0.5, 1.0)(PIXELS), hm.DTypeError, "ToTensor"),
        (lambda: T.ColorJitter(hue=0.7), hm.ArgumentError, "hue must be from -0.5 to 0.5"),
        (lambda: T.ColorJitter(brightness=-1), hm.ArgumentError, "no number below 0"),
        (lambda: T.RandomErasing(value="noise"), hm.ArgumentError, 'each channel or "random"'),
        (lambda: T.RandomErasing(p=1.0, value=(1, 2))(PIXELS), hm.ArgumentError, "2 values for an image of 3 channels"),
        (lambda: T.RandomChoice([abs], p=[1, 2]), hm.ArgumentError, "a weight for each"),
        (lambda: T.RandomChoice([abs], p=[0]), hm.ArgumentError, "a weight for each"),
        (lambda: T.Lambda(3), TypeError, "takes a function"),
        (lambda: T.Grayscale(2), hm.ArgumentError, "1 or 3"),
        (lambda: T.RandomRotation(-5), hm.ArgumentError, "degrees"),
        (lambda: T.ToTensor()("cat.jpg"), TypeError, "got str"),
        (lambda: hm.data.default_collate([pillow.fromarray(PIXELS)]), TypeError, "ToTensor"),
        (lambda: T.Pad(1)([1, 2]), TypeError, "got list"),
        (lambda: T.Pad(1)(np.zeros((2, 2, 2, 3))), hm.ShapeError, "got \\(2, 2, 2, 3\\)"),
        (lambda: T.Vocabulary(["a", "a"]), hm.ArgumentError, "'a' comes twice"),
        (lambda: T.Vocabulary(["a"])["b"], KeyError, "default_index"),
        (lambda: T.PadCollate(multiple=0), hm.ArgumentError, "multiple"),
    ],
)
def test_errors_say_what_is_wrong(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


class Images:
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.transform(PIXELS), index


def test_transforms_in_workers_depend_on_the_seed() -> None:
    augment = T.Compose([T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.ColorJitter(0.3, 0.3, 0.3), T.ToTensor()])
    found = []
    for workers in (1, 2, 2):
        loader = DataLoader(Images(augment), 4, num_workers=workers, generator=5)
        found.append([[batch[0].numpy() for batch in loader] for _ in range(2)])
    for others in found[1:]:
        np.testing.assert_array_equal(others, found[0])
    assert (found[0][0][0] != found[0][1][0]).any() and (found[0][0][0][0] != found[0][0][0][1]).any()


def test_erased_parts_have_the_area_and_proportions_that_are_asked_for() -> None:
    hm.manual_seed(0)
    image = hm.ones((3, 40, 60))
    for _ in range(50):
        hole = (T.RandomErasing(p=1.0, scale=(0.1, 0.2), ratio=(0.5, 1.0))(image) == 0).numpy()
        assert (hole == hole[:1]).all()
        rows, columns = hole[0].any(1).sum(), hole[0].any(0).sum()
        assert hole[0].sum() == rows * columns and 0.09 < rows * columns / 2400 < 0.21 and 0.45 < rows / columns < 1.05
    assert (image == 1).all() and T.RandomErasing(p=0.0)(image) is image
    noisy = T.RandomErasing(p=1.0, value="random")(image)
    assert len({*noisy[noisy != 1].tolist()}) > 100
    assert T.RandomErasing(p=1.0, scale=(2.0, 2.0))(image) is image  # no part is as large


def test_choices_have_their_weights() -> None:
    hm.manual_seed(0)
    choice = T.RandomChoice([T.Lambda(lambda x: x), T.Lambda(lambda x: -x)], p=[1, 3])
    assert 650 < sum(choice(1) == -1 for _ in range(1000)) < 850


def test_reprs() -> None:
    transform = T.Compose([T.ToTensor(), T.CenterCrop(4)])
    assert repr(transform) == "Compose(\n    ToTensor()\n    CenterCrop(size=(4, 4))\n)"


def test_text_to_batches() -> None:
    texts = ["The cat sat.", "A dog!", "The end"]
    tokens = [T.basic_english(text) for text in texts]
    assert tokens[1] == ["a", "dog", "!"] == T.RegexTokenizer(lowercase=True)(texts[1])
    assert T.CharTokenizer()("ab") == ["a", "b"]
    vocab = T.build_vocab_from_iterator(tokens, specials=["<pad>", "<unk>"])
    vocab.set_default_index(vocab["<unk>"])
    assert vocab.get_itos()[:3] == ["<pad>", "<unk>", "the"] and vocab["bird"] == 1 and "cat" in vocab
    assert vocab.lookup_tokens(vocab(tokens[0])) == tokens[0] and vocab.get_stoi()["the"] == 2
    assert len(T.build_vocab_from_iterator(tokens, min_freq=2, specials=["<unk>"], special_first=False)) == 2
    assert T.build_vocab_from_iterator(tokens, max_tokens=3, specials=["<unk>"]).get_itos() == ["<unk>", "the", "!"]
    with pytest.raises(IndexError, match=re.escape(f"no number of its {len(vocab)}")):
        vocab.lookup_token(len(vocab))
    samples = [(T.Truncate(3)(vocab(line)), k) for k, line in enumerate(tokens)]
    for workers in (0, 1):
        loader = DataLoader(samples, 2, collate_fn=T.PadCollate(padding_value=0, multiple=4), num_workers=workers)
        (numbers, labels), lengths = next(iter(loader))
        assert numbers.shape == (2, 4) and numbers.dtype == hm.int64 and labels.tolist() == [0, 1]
        assert lengths.tolist() == [3, 3] and numbers[:, 3].tolist() == [0, 0]


def test_padding_of_dicts_arrays_and_empty_lists() -> None:
    batch = T.PadCollate(-1.0, keys=["x", "m"])(
        [
            {"x": np.ones((2, 3), np.float32), "m": [True], "n": "a"},
            {"x": np.zeros((1, 3), np.float32), "m": [], "n": "b"},
        ]
    )
    assert batch["x"].shape == (2, 2, 3) and batch["x"][1, 1].tolist() == [-1.0] * 3 and batch["n"] == ["a", "b"]
    assert batch["lengths"].tolist() == [2, 1] and batch["m"].shape == (2, 1)
    padded, lengths = T.PadCollate()([[], []])
    assert padded.shape == (2, 0) and lengths.tolist() == [0, 0]
    assert T.PadCollate()([[0.5], [1.5, 2.5]])[0].dtype == hm.float32
