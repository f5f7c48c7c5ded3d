"""Images of a folder, as a timm model wants them."""
import cv2
import numpy as np
import pytest
import timm
import torch

from locat_mmseg.analysis.timm_images import image_batches

NAME = 'test_vit'  # timm's own tiny ViT, 160 pixels


def write_images(folder, count):
    for number in range(count):
        path = folder / f'{number % 2}'
        path.mkdir(exist_ok=True)
        cv2.imwrite(str(path / f'{number}.png'), np.full((90, 120, 3), 20 * number, np.uint8))


def test_images_are_evenly_spaced_and_normalised(tmp_path):
    write_images(tmp_path, 6)
    model = timm.create_model(NAME, img_size=64)
    batches = list(image_batches(model, str(tmp_path), 4, batch_size=3))
    assert [batch.shape for batch in batches] == [(3, 3, 64, 64), (1, 3, 64, 64)]
    mean, std = (torch.tensor(model.pretrained_cfg[key])[:, None, None] for key in ('mean', 'std'))
    greys = [round(255 * (image * std + mean).mean().item()) for image in torch.cat(batches)]
    assert greys == [0, 40, 20, 60]  # sorted by path: 0/0, 0/2, 0/4, 1/1, 1/3, 1/5


def test_a_folder_without_images(tmp_path):
    (tmp_path / 'empty').mkdir()
    for folder in ('none', 'empty'):
        with pytest.raises(ValueError, match=f'no images below .*{folder}: give a folder'):
            image_batches(timm.create_model(NAME), str(tmp_path / folder), 1, 1)


def test_a_broken_image_is_named(tmp_path):
    write_images(tmp_path, 4)
    (tmp_path / '1/1.png').write_bytes((tmp_path / '1/1.png').read_bytes()[:60])
    batches = image_batches(timm.create_model(NAME), str(tmp_path), None, batch_size=4)
    with pytest.raises(ValueError, match=r'1.1\.png cannot be read .*: repair the file'):
        list(batches)
