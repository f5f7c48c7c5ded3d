"""From a command line to a model that takes pictures: what it computes is what OpenMMLab does."""
import argparse

import pytest
import torch
from mmcv.transforms import TRANSFORMS
from mmengine.config import Config
from tiny_locat_configs import CLASSIFIER, SEGMENTOR, checkpoint_of

from locat_mmseg.analysis.feature_hooks import FeatureReader
from locat_mmseg.analysis.feature_layers import feature_layers
from locat_mmseg.analysis.picture_model import PictureModel
from locat_mmseg.analysis.token_readout import TokenReadout
from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.picture_data import add_picture_arguments, size_of
from locat_mmseg.openmmlab.picture_model import (add_model_arguments, from_config, load_model,
                                                 model_settings, num_classes_of)


def parsed(*argv):
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    return parser.parse_args([str(a) for a in argv])


@pytest.fixture(params=['segmentor', 'classifier'])
def built(request, segmentation_config, classification_config):
    config = segmentation_config(SEGMENTOR) if request.param == 'segmentor' \
        else classification_config(CLASSIFIER)
    return config, checkpoint_of(config)


@pytest.mark.parametrize('in_pipeline', [False, True])
@pytest.mark.parametrize('to_rgb', [False, True])
@pytest.mark.parametrize('arrays', [False, True], ids=['files', 'arrays'])
def test_logits_are_those_of_openmmlab_s_way_from_the_data_to_the_model(built, arrays, to_rgb,
                                                                        in_pipeline):
    """A data set of arrays has red first, files come with blue first."""
    config, checkpoint = built
    cfg = Config.fromfile(config)
    key = 'to_rgb' if 'head' in cfg.model else 'bgr_to_rgb'
    numbers = dict(mean=[10., 20., 30.], std=[50., 60., 70.])
    preprocessor = cfg.data_preprocessor if 'head' in cfg.model else cfg.model.data_preprocessor
    normalize = [dict(type='Normalize', **numbers, to_rgb=to_rgb)] if in_pipeline else []
    preprocessor.update(dict(mean=None, std=None) if in_pipeline else {**numbers, key: to_rgb})
    load = [] if arrays else [dict(type='LoadImageFromFile')]
    cfg.test_dataloader.dataset.pipeline = [*load, *normalize, dict(type='PackInputs')]
    model = from_config(cfg, str(checkpoint))

    pixels = torch.randint(0, 256, (3, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
    loaded = (pixels if arrays else pixels.flip(0)).permute(1, 2, 0).numpy()
    for step in normalize:
        loaded = TRANSFORMS.build(step)(dict(img=loaded))['img']
    inputs = torch.from_numpy(loaded).permute(2, 0, 1)
    data = model.network.data_preprocessor(dict(inputs=[inputs], data_samples=[_Sample()]), False)
    with torch.no_grad():
        expected = model.network(data['inputs'])
        found = model(pixels[None] / 255)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class _Sample:
    def set_metainfo(self, info):
        pass


def test_layers_are_those_of_the_timm_model_and_a_frozen_one_has_gradients(built):
    model = load_model(parsed(*built, '--device', 'cpu'))
    assert model.size == (32, 32)
    layers = feature_layers(model)
    assert [layer.name for layer in layers] == ['blocks.0.mlp', 'blocks.1.mlp']
    x = torch.rand(1, 3, 40, 24).requires_grad_()
    FeatureReader(model, layers)(x)[1].sum().backward()
    assert x.grad.abs().sum() > 0
    x.grad = None
    FeatureReader(model, feature_layers(model, 'logit'))(x)[0].sum().backward()
    assert x.grad.abs().sum() > 0


def test_a_cnn_of_timm_from_a_config(classification_config):
    """With arguments that its name in timm does not tell: the stride, here 8 instead of 32."""
    config = classification_config("""
model = dict(type='TimmClassifier', model_name='test_resnet', num_classes=3, output_stride=8)
""")
    model = load_model(parsed(config, checkpoint_of(config), '--device', 'cpu'))
    pictures = torch.rand(2, 3, 32, 32)
    assert model.core.forward_features(pictures).shape == (2, 96, 4, 4)
    torch.testing.assert_close(model(pictures), model.core(model.normalise(pictures)))
    assert len(feature_layers(model, 'channel')) == 5  # the stem and four stages
    assert num_classes_of(model) == 3


def test_a_vit_of_timm_from_a_config_is_a_classifier(classification_config):
    config = classification_config("""
model = dict(type='TimmClassifier', model_name='test_vit', num_classes=3, dynamic_img_size=True)
""")
    model = load_model(parsed(config, checkpoint_of(config), '--device', 'cpu'))
    mean, std = model.mean.flatten().tolist(), model.std.flatten().tolist()
    bare = PictureModel(model.core, mean, std, bgr=model.bgr)
    pictures = torch.rand(2, 3, 32, 48)
    assert model.is_timm and bare.is_timm
    for one, other in zip(TokenReadout(model)(pictures), TokenReadout(bare)(pictures)):
        assert torch.equal(one, other)
    assert TokenReadout(model).reads_class_token


def test_number_of_classes(built):
    model = load_model(parsed(*built))
    assert not model.is_timm
    assert num_classes_of(model) == (3 if hasattr(model.network, 'decode_head') else 2)


def test_settings_tell_weights_by_their_content(built, tmp_path):
    config, checkpoint = built
    args = parsed(config, checkpoint)
    settings = model_settings(args)
    assert settings['weights'].startswith(checkpoint.name + ' ') and settings['cfg_options'] == {}
    (tmp_path / 'moved').mkdir()
    args.checkpoint = str(checkpoint.rename(tmp_path / 'moved' / checkpoint.name))
    assert model_settings(args) == settings
    torch.save({}, args.checkpoint)
    assert model_settings(args) != settings
    assert model_settings(parsed('--timm', 'resnet18', '--weights', 'random')) == dict(
        model='resnet18', weights='random')


def test_mistakes(built, segmentation_config):
    config, checkpoint = built
    for argv in ((), (config, checkpoint, '--timm', 'resnet18')):
        with pytest.raises(UserError, match='give either CONFIG CHECKPOINT or --timm NAME'):
            load_model(parsed(*argv))
    with pytest.raises(UserError, match='needs its CHECKPOINT'):
        load_model(parsed(config))
    other = segmentation_config()
    with pytest.raises(UserError, match='the backbone is a VisionTransformer: its features can be'):
        load_model(parsed(other, checkpoint_of(other)))
    with pytest.raises(ValueError, match='does not fit the config: RuntimeError: Error'):
        load_model(parsed(config, checkpoint_of(other)))


def test_size_of_pictures(built):
    model = load_model(parsed(*built))
    parser = argparse.ArgumentParser()
    add_picture_arguments(parser)
    for argv, size in (([], (32, 32)), (['--size', '48'], (48, 48)),
                       (['--size', '40', '56'], (40, 56))):
        assert size_of(parser.parse_args(['--images', 'x', *argv]), model) == size
