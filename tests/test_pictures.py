"""Picture files of every kind: what becomes of their pixels, and what is said of bad ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.data import pictures
from benchmarks.errors import InputError
from benchmarks.verify import strategies
from tests.support import tolerances
from tests.support.pictures import encoded, huge

LOSSLESS = ("png", "bmp", "tiff", "ppm")
FILE = "some/where.png"


def decoded(data):
    return np.asarray(pictures.decode(data, FILE))


@st.composite
def pixels(draw, channels=(3,), largest=12):
    """A small picture's pixels, (height, width, *channels) uint8."""
    size = st.integers(1, largest)
    return draw(strategies.generators()).integers(
        0, 256, (draw(size), draw(size), *channels), np.uint8
    )


@given(pixels(), st.sampled_from(LOSSLESS))
def test_rgb_is_read_as_it_is_down_to_one_pixel(rgb, kind):
    data = encoded(Image.fromarray(rgb), kind)
    np.testing.assert_array_equal(decoded(data), rgb)


@given(pixels(channels=()), st.sampled_from(LOSSLESS), st.booleans())
def test_grey_of_8_and_of_16_bits_are_the_same_grey(grey, kind, deep):
    if deep and kind == "bmp":
        kind = "png"
    values = grey.astype(np.uint16) * 257 if deep else grey
    np.testing.assert_array_equal(
        decoded(encoded(Image.fromarray(values), kind)), np.stack([grey] * 3, -1)
    )


@given(pixels(channels=()))
def test_grey_of_32_bits_is_read_where_it_fits_into_16(grey):
    values = grey.astype(np.int32) * 257
    expected = np.stack([grey] * 3, -1)
    np.testing.assert_array_equal(decoded(encoded(Image.fromarray(values), "tiff")), expected)
    for wrong in (values - 70_000, values + 70_000, grey.astype(np.float32)):
        with pytest.raises(InputError, match=r"where\.png: pixels of mode [IF], expected 8 or 16"):
            decoded(encoded(Image.fromarray(wrong), "tiff"))


@given(pixels(channels=(4,)), st.sampled_from(("png", "tiff", "webp")))
def test_what_is_transparent_is_white_and_what_is_opaque_stays(rgba, kind):
    rgba[..., 3] = np.where(rgba[..., 3] < 128, 0, 255)
    options = {"lossless": True, "exact": True} if kind == "webp" else {}
    expected = np.where(rgba[..., 3:] == 0, 255, rgba[..., :3])
    np.testing.assert_array_equal(
        decoded(encoded(Image.fromarray(rgba), kind, **options)), expected
    )


@given(pixels(), st.sampled_from(("P", "1", "L", "LA", "RGBA", "CMYK", "I;16")))
def test_every_mode_becomes_rgb_of_the_same_size(rgb, mode):
    image = Image.fromarray(rgb)
    image = image.convert("L").convert(mode) if mode == "I;16" else image.convert(mode)
    got = pictures.decode(encoded(image, "tiff"), FILE)
    assert got.mode == "RGB" and got.size == image.size


@given(st.integers(0, 255))
def test_cmyk_is_the_colour_that_it_prints(level):
    image = Image.new("CMYK", (8, 8), (0, 0, 0, level))
    assert (decoded(encoded(image, "tiff")) == 255 - level).all()
    grey = decoded(encoded(image, "jpeg", quality=100))
    assert abs(grey.astype(int) - (255 - level)).max() <= tolerances.JPEG


TURNED = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}


@given(pixels(), st.sampled_from(sorted(TURNED)), st.sampled_from(("png", "tiff")))
def test_a_picture_is_turned_as_its_camera_says(rgb, orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(rgb), kind, exif=exif.tobytes())
    np.testing.assert_array_equal(decoded(data), TURNED[orientation](rgb))


@given(st.lists(pixels(largest=1), min_size=2, max_size=4, unique_by=bytes), st.data())
def test_of_several_pictures_in_a_file_the_first_is_read_and_their_number_known(
    tmp_path_factory, colours, data
):
    kind = data.draw(st.sampled_from(("png", "tiff", "gif", "webp")))
    frames = [Image.new("RGB", (9, 7), tuple(map(int, colour.ravel()))) for colour in colours]
    options = {"lossless": True} if kind == "webp" else {}
    path = tmp_path_factory.mktemp("several") / f"x.{kind}"
    path.write_bytes(encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options))
    assert pictures.header(path) == pictures.Header(9, 7, len(frames))
    np.testing.assert_array_equal(np.asarray(pictures.read(path)), np.asarray(frames[0]))


@settings(max_examples=60)
@given(pixels(largest=40), st.data())
def test_a_damaged_file_gives_a_picture_or_is_named_never_a_traceback(rgb, data):
    kind = data.draw(st.sampled_from(("jpeg", "png", "gif", "webp", "bmp", "tiff", "ppm")))
    content = bytearray(encoded(Image.fromarray(rgb), kind))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    try:
        image = pictures.decode(bytes(content), FILE)
    except InputError as error:
        assert str(error).startswith(FILE) and "\n" not in str(error)
    else:
        assert image.mode == "RGB" and np.asarray(image).size


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_a_truncated_picture_has_a_good_header_and_no_good_pixels(tmp_path, kind):
    noise = np.random.default_rng(0).integers(0, 256, (60, 60, 3), np.uint8)
    path = tmp_path / "cut.x"
    whole = encoded(Image.fromarray(noise), kind)
    path.write_bytes(whole[: 2 * len(whole) // 3])
    if kind != "webp":
        assert pictures.header(path) == pictures.Header(60, 60, 1)
    with pytest.raises(InputError, match=r"cut\.x: not a whole photograph"):
        pictures.read(path)


@pytest.mark.parametrize("size", [(10_000, 10_000), (100_000, 100_000)])
def test_a_picture_of_100_megapixels_is_refused_by_its_header(tmp_path, size):
    path = tmp_path / "huge.png"
    path.write_bytes(huge(*size))
    for refused in (pictures.header, pictures.read):
        with pytest.raises(InputError, match=r"huge\.png: too large, expected at most 89,478,485"):
            refused(path)


def test_the_largest_that_is_not_refused_is_only_cut_off(tmp_path):
    path = tmp_path / "large.png"
    path.write_bytes(huge(8_000, 11_000))
    assert pictures.header(path).width == 8_000


@given(st.binary(max_size=80))
def test_other_bytes_are_no_picture(content):
    with pytest.raises(InputError, match=r"not a whole photograph"):
        pictures.decode(content, FILE)


def test_a_format_whose_decoder_starts_programs_is_no_picture():
    with pytest.raises(InputError, match="of a known format"):
        pictures.decode(encoded(Image.new("RGB", (4, 4)), "eps"), FILE)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    for path in (tmp_path / "missing.png", tmp_path):
        with pytest.raises(InputError, match=r"cannot be read"):
            pictures.read(path)


def test_files_and_the_pictures_of_folders_are_found_once_each(tmp_path):
    for name in ("b.png", "a.JPG", "sub/c.webp", ".hidden.png", "notes.txt", "sub/deep/d.tif"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "folder.png").mkdir()
    inside = [tmp_path / name for name in ("a.JPG", "b.png", "sub/c.webp", "sub/deep/d.tif")]
    assert pictures.find([tmp_path]) == inside
    explicit = tmp_path / "notes.txt"
    assert pictures.find([explicit, tmp_path, tmp_path / "b.png"]) == [explicit, *inside]
    with pytest.raises(InputError, match=r"nothing: no such file, expected a picture or a folder"):
        pictures.find([tmp_path / "nothing"])
    with pytest.raises(InputError, match=r"folder\.png: a folder without pictures"):
        pictures.find([tmp_path / "folder.png"])


@given(pixels(largest=30), st.integers(1, 20))
def test_a_square_is_left_alone_and_anything_else_becomes_one(rgb, size):
    squeezed = pictures.squeeze(Image.fromarray(rgb), size)
    assert squeezed.shape == (size, size, 3) and squeezed.dtype == np.uint8
    np.testing.assert_array_equal(pictures.squeeze(Image.fromarray(squeezed), size), squeezed)
    flat = Image.new("RGB", rgb.shape[:2], tuple(map(int, rgb[0, 0])))
    assert (pictures.squeeze(flat, size) == rgb[0, 0]).all(), "one colour stays one"
