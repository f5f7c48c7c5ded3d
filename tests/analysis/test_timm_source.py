"""timm models by name with weights from files, and images as they want them."""
import cv2
import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from locat_mmseg.addon import GAugAttention, add_gaug
from locat_mmseg.analysis.timm_source import image_batches, timm_model

NAME = 'test_vit'  # timm's own tiny ViT, 160 pixels


@pytest.mark.parametrize('gaug', [False, True], ids=['plain', 'gaug'])
@pytest.mark.parametrize('num_classes', [0, 7])
def test_weights_from_a_file(num_classes, gaug, tmp_path):
    model = timm.create_model(NAME, num_classes=num_classes)
    model = (add_gaug(model) if gaug else model).eval()
    save_file(model.state_dict(), tmp_path / 'a.safetensors')
    loaded = timm_model(NAME, str(tmp_path / 'a.safetensors'))
    image = torch.randn(1, 3, 160, 160)
    assert not loaded.training
    assert isinstance(loaded.blocks[0].attn, GAugAttention) == gaug
    torch.testing.assert_close(loaded.forward_features(image), model.forward_features(image))


def test_another_size(tmp_path):
    save_file(timm.create_model(NAME).state_dict(), tmp_path / 'a.safetensors')
    model = timm_model(NAME, str(tmp_path / 'a.safetensors'), img_size=64)
    assert model.patch_embed.grid_size == (4, 4)


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


@pytest.mark.parametrize('call, message', [
    (lambda folder: timm_model('test_vitt'), "has no model 'test_vitt'; similar: test_vit"),
    (lambda folder: timm_model(NAME, f'{folder}/none.pth'), 'none.pth: no such file'),
    (lambda folder: timm_model(NAME, f'{folder}/broken.pth'), r'broken.pth cannot be read \('),
    (lambda folder: timm_model(NAME, f'{folder}/other.safetensors'), 'not of this VisionTransf'),
    (lambda folder: image_batches(timm.create_model(NAME), f'{folder}/none', 1, 1), 'no images'),
    (lambda folder: image_batches(timm.create_model(NAME), f'{folder}/empty', 1, 1), 'no images'),
])
def test_mistakes(call, message, tmp_path):
    (tmp_path / 'broken.pth').write_bytes(b'no weights')
    (tmp_path / 'empty').mkdir()
    save_file({'a': torch.zeros(1)}, tmp_path / 'other.safetensors')
    with pytest.raises(ValueError, match=message):
        call(tmp_path)
