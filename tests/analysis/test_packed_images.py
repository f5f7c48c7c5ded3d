"""Packed files give back what was written."""
import cv2
import numpy as np
import pytest

from locat_mmseg.analysis.packed_images import read_packed, write_packed


def random_images(count: int, height: int = 5, width: int = 7) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, height, width, 3), np.uint8)


def test_round_trip(tmp_path):
    train, test = random_images(4), random_images(3)
    write_packed(tmp_path / 'pack', dict(train=(train, [0, 1, 1, 0]), test=(test, [1, 1, 0])),
                 ['cat', 'dog'])
    assert [path.name for path in tmp_path.iterdir()] == ['pack']
    for split, images, labels in (('train', train, [0, 1, 1, 0]), ('test', test, [1, 1, 0])):
        read = read_packed(tmp_path / 'pack', split)
        assert read.images.dtype == np.uint8 and np.array_equal(read.images, images)
        assert read.labels.dtype == np.int64 and read.labels.tolist() == labels
        assert read.classes == ('cat', 'dog')


def test_smooth_images_take_less_room(tmp_path):
    random = np.random.default_rng(0)
    images = np.stack([cv2.resize(image, (32, 32)) for image in random_images(200, 4, 4)])
    images += random.integers(0, 3, images.shape, np.uint8)
    write_packed(tmp_path / 'pack', dict(train=(images, [0] * 200)), ['cloud'])
    np.savez_compressed(tmp_path / 'plain.npz', images)
    assert (tmp_path / 'pack').stat().st_size < 0.75 * (tmp_path / 'plain.npz').stat().st_size


def test_other_files_and_splits(tmp_path):
    np.savez(tmp_path / 'other.npz', weights=np.zeros(3))
    (tmp_path / 'text.npz').write_text('version https://git-lfs')
    for path in (tmp_path / 'text.npz', tmp_path, tmp_path / 'gone.npz'):
        with pytest.raises(ValueError, match=f'{path} is no packed data set, or not all of one'):
            read_packed(path, 'train')
    with pytest.raises(ValueError, match='other.npz is no packed data set'):
        read_packed(tmp_path / 'other.npz', 'train')
    write_packed(tmp_path / 'pack', dict(train=(random_images(1), [0])), ['cat'])
    with pytest.raises(ValueError, match=r"has no split 'val', but \['train'\]"):
        read_packed(tmp_path / 'pack', 'val')


@pytest.mark.parametrize('images, labels, message', [
    (random_images(2) / 255, [0, 0], r'train: images are float64 \(2, 5, 7, 3\), expected uint8'),
    (random_images(2)[..., :2], [0, 0], 'expected uint8'),
    (random_images(2), [0], r'train: 2 images, but labels of shape \(1,\)'),
    (random_images(2), [0, 1], 'labels from 0 to 1, but there are 1 classes'),
])
def test_wrong_arrays(tmp_path, images, labels, message):
    with pytest.raises(ValueError, match=message):
        write_packed(tmp_path / 'pack', dict(train=(images, labels)), ['cat'])
