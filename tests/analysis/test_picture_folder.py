"""Pictures of any size and depth of folder come in one size, label maps with them."""
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import InterpolationMode

from locat_mmseg.analysis.picture_folder import PictureFolder, cover, evenly_spaced


def write(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(array, np.uint8)).save(path)


def test_order_names_and_colours(tmp_path):
    for name, colour in (('b/2.png', (255, 0, 0)), ('a/9.PNG', (0, 255, 0)),
                         ('c.jpg', (0, 0, 255)), ('a/1.bmp', (51, 102, 153))):
        write(tmp_path / name, np.full((9, 7, 3), colour))
    (tmp_path / 'notes.txt').write_text('no picture')
    data = PictureFolder(tmp_path, (6, 6))
    assert [p.relative_to(tmp_path).as_posix() for p in data.paths] == [
        'a/1.bmp', 'a/9.PNG', 'b/2.png', 'c.jpg']
    assert data[0].shape == (3, 6, 6)
    torch.testing.assert_close(data[0].mean((1, 2)), torch.tensor([0.2, 0.4, 0.6]))
    assert data[2][:, 0, 0].tolist() == [1, 0, 0]  # red first
    assert len(PictureFolder(tmp_path, (6, 6), limit=2)) == 2
    assert [p.name for p in PictureFolder(tmp_path, (6, 6), limit=2).paths] == ['1.bmp', '2.png']
    assert len(PictureFolder(tmp_path, (6, 6), limit=9)) == 4


@pytest.mark.parametrize('limit, places', [
    (None, [0, 1, 2, 3, 4]), (0, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4]), (1, [0]), (2, [0, 2]),
    (3, [0, 1, 3])])
def test_evenly_spaced(limit, places):
    assert evenly_spaced(5, limit) == places


def test_grey_and_transparent_pictures(tmp_path):
    write(tmp_path / '1.png', np.full((4, 4), 102))
    write(tmp_path / '2.png', np.full((4, 4, 4), 51))
    data = PictureFolder(tmp_path, (4, 4))
    torch.testing.assert_close(data[0], torch.full((3, 4, 4), 0.4))
    torch.testing.assert_close(data[1], torch.full((3, 4, 4), 0.2))


@pytest.mark.parametrize('before, size', [((9, 7), (6, 6)), ((7, 31), (5, 8)), ((3, 3), (10, 4)),
                                          ((100, 333), (37, 50))])
def test_cover(before, size):
    image = torch.arange(before[1]).expand(1, *before).float()
    covered = cover(image, size, InterpolationMode.BILINEAR)
    assert covered.shape == (1, *size)
    middle = covered[0, size[0] // 2]
    scale = max(size[0] / before[0], size[1] / before[1])
    # Centred, to half a pixel after scaling.
    assert middle.mean().item() == pytest.approx((before[1] - 1) / 2, abs=0.55 / scale)
    slope = (middle[-2] - middle[1]) / (size[1] - 3)
    assert slope.item() == pytest.approx(1 / scale, rel=0.35)


def test_label_maps_lie_over_the_pictures(tmp_path):
    labels = np.zeros((20, 32), np.uint8)
    labels[:, 16:] = 7
    write(tmp_path / 'images/val/1.jpg', np.stack([labels * 30] * 3, -1))
    write(tmp_path / 'labels/val/1.png', labels)
    data = PictureFolder(tmp_path / 'images', (10, 12), tmp_path / 'labels')
    mask, picture = data.mask(0), data[0]
    assert mask.shape == (10, 12) and mask.dtype == torch.int64
    assert mask[5].tolist() == [0] * 6 + [7] * 6
    assert (picture[0, 5] > 0.4).tolist() == [False] * 6 + [True] * 6
    Image.fromarray(labels).convert('P').save(tmp_path / 'labels/val/1.png')
    assert set(data.mask(0).flatten().tolist()) <= {0, 7}


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match='holds no pictures .*.bmp, .jpeg, .jpg, .png, .webp'):
        PictureFolder(tmp_path, (4, 4))
    write(tmp_path / 'images/1.png', np.zeros((4, 4, 3)))
    with pytest.raises(ValueError, match=r'1.png has no label map .*masks/1.png \(1 of 1 pict'):
        PictureFolder(tmp_path / 'images', (4, 4), tmp_path / 'masks')
    write(tmp_path / 'masks/1.png', np.zeros((4, 4, 3)))
    (tmp_path / 'images/2.png').write_text('no picture')
    with pytest.raises(ValueError, match='images/2.png cannot be read .Unidentified.*: repair'):
        PictureFolder(tmp_path / 'images', (4, 4))[1]
    whole = (tmp_path / 'images/1.png').read_bytes()
    (tmp_path / 'images/2.png').write_bytes(whole[:len(whole) // 2])
    with pytest.raises(ValueError, match='images/2.png cannot be read'):
        PictureFolder(tmp_path / 'images', (4, 4))[1]
    (tmp_path / 'images/2.png').write_bytes(whole)
    write(tmp_path / 'masks/2.png', np.zeros((8, 4)))
    with pytest.raises(ValueError, match='masks/2.png is 8 x 4, but its picture 4 x 4: pair'):
        PictureFolder(tmp_path / 'images', (4, 4), tmp_path / 'masks').mask(1)
    with pytest.raises(ValueError, match='has 3 channels: expected label numbers'):
        PictureFolder(tmp_path / 'images', (4, 4), tmp_path / 'masks').mask(0)
