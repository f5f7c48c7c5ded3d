"""init_cfg of the backbones: every key of a file accounted for, another model refused."""
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import CheckpointLoader, load_checkpoint
from tiny_timm import randomize
from torch import nn
from torch.nn import functional as F

from locat_mmseg.openmmlab.backbones import LocAtSwin, LocAtViT, TimmBackbone
from locat_mmseg.openmmlab.checkpoint import load_backbone, read_state_dict

ARCH = dict(embed_dims=24, num_layers=3, num_heads=3)
SWIN = dict(embed_dims=12, depths=(1, 1), num_heads=(3, 3))


def vit(**kwargs) -> LocAtViT:
    return LocAtViT(**{'arch': ARCH, 'img_size': 32, 'patch_size': 8, **kwargs})


def swin(**kwargs) -> LocAtSwin:
    return LocAtSwin(**{'arch': SWIN, 'img_size': 32, 'patch_size': 2, 'window_size': 4,
                        'out_indices': (0, 1), **kwargs})


@pytest.fixture
def classifier_file(tmp_path: Path) -> str:
    """As mmengine saves a classifier: a backbone with its final norm, and a head."""
    backbone = randomize(vit(out_type='tokens')).state_dict()
    weights = {f'backbone.{name}': weight for name, weight in backbone.items()}
    torch.save(dict(meta=dict(epoch=1), state_dict={**weights, 'head.fc.weight': torch.ones(2, 24)},
                    message_hub={}), tmp_path / 'classifier.pth')
    return str(tmp_path / 'classifier.pth')


@pytest.fixture
def plain_file(tmp_path: Path) -> str:
    """A plain ViT in timm's names."""
    weights = randomize(vit(gaug=False, out_type='tokens')).state_dict()
    torch.save({name.removeprefix('model.'): w for name, w in weights.items()},
               tmp_path / 'plain.pth')
    return str(tmp_path / 'plain.pth')


# --- every key accounted for ---------------------------------------------------------------------

@pytest.mark.parametrize('prefix', ['backbone.', 'backbone'])
def test_report(classifier_file: str, prefix: str):
    backbone = vit(out_indices=(0, 1))
    report = load_backbone(backbone, classifier_file, prefix)
    source = read_state_dict(classifier_file)
    for name, weight in backbone.state_dict().items():
        assert torch.equal(weight, source[f'backbone.{name}'])
    block = {name for name in source if name.startswith('backbone.model.blocks.2.')}
    assert len(block) == 16
    assert set(report.unused) == {'head.fc.weight', 'norm.weight', 'norm.bias'} | {
        name.removeprefix('backbone.model.') for name in block}
    assert report.loaded == len(backbone.state_dict()) == len(source) - len(report.unused)
    assert not report.missing and not report.resampled


def test_plain_weights_leave_gaug_as_initialised(plain_file: str):
    backbone = vit()
    report = load_backbone(backbone, plain_file)
    assert report.missing == sorted(name.removeprefix('model.') for name in backbone.state_dict()
                                    if '.gaug.' in name)


def test_plain_weights_for_a_larger_grid(plain_file: str):
    backbone = vit(img_size=64)
    report = load_backbone(backbone, plain_file)
    source = read_state_dict(plain_file)['pos_embed']
    patches = source[:, 1:].unflatten(1, (4, 4)).permute(0, 3, 1, 2)
    patches = F.interpolate(patches, size=(8, 8), mode='bicubic', antialias=True)
    torch.testing.assert_close(backbone.model.pos_embed[:, 1:],
                               patches.flatten(2).transpose(1, 2))
    assert torch.equal(backbone.model.pos_embed[:, :1], source[:, :1])
    assert report.resampled == ['pos_embed (1, 17, 24) -> (1, 65, 24)']


def test_norms_of_the_maps_come_along_where_the_file_has_them(tmp_path: Path):
    segmentation, classification = randomize(swin()), randomize(swin(out_type='tokens'))
    for source, missing in ((segmentation, []), (classification, [
            f'out_norms.{i}.{kind}' for i in (0, 1) for kind in ('bias', 'weight')])):
        torch.save(source.state_dict(), tmp_path / 'swin.pth')
        backbone = swin()
        before = backbone.out_norms.state_dict()
        report = load_backbone(backbone, str(tmp_path / 'swin.pth'))
        assert report.missing == missing
        for name, weight in backbone.state_dict().items():
            expected = source.state_dict().get(name, before.get(name.removeprefix('out_norms.')))
            assert torch.equal(weight, expected), name
        assert report.loaded == len(backbone.state_dict()) - len(missing)


def test_a_segmentor_keeps_what_its_backbone_loaded(classifier_file: str):
    """mmengine's init_weights goes through the whole model, timm's layers included."""
    init_default_scope('mmseg')
    model = MODELS.build(Config(dict(
        type='EncoderDecoder',
        backbone=dict(type='LocAtViT', arch=ARCH, img_size=32, patch_size=8, init_cfg=dict(
            type='Pretrained', checkpoint=classifier_file, prefix='backbone.')),
        decode_head=dict(type='FCNHead', in_channels=24, in_index=0, channels=8, num_convs=1,
                         num_classes=3, norm_cfg=dict(type='BN'))))._cfg_dict)
    model.init_weights()
    source = read_state_dict(classifier_file)
    assert all(torch.equal(weight, source[f'backbone.{name}'])
               for name, weight in model.backbone.state_dict().items())


@pytest.mark.parametrize('build', [vit, swin])
def test_load_from_takes_the_names_of_timm(build: Callable[[], TimmBackbone], tmp_path: Path):
    """mmengine's own loader, which Runner.load_from uses, on a whole model."""
    source, target = (nn.ModuleDict(dict(backbone=build(), head=nn.Linear(2, 2)))
                      for _ in range(2))
    randomize(source)
    torch.save({name.replace('backbone.model.', 'backbone.'): weight
                for name, weight in source.state_dict().items()}, tmp_path / 'timm.pth')
    load_checkpoint(target, str(tmp_path / 'timm.pth'), strict=True)
    assert all(torch.equal(target.state_dict()[name], weight)
               for name, weight in source.state_dict().items())


# --- refusals ------------------------------------------------------------------------------------

@pytest.mark.parametrize('build, message', [
    (lambda: vit(img_size=64), 'GAug parameters of a 4 x 4 grid, .* for a 8 x 8 grid'),
    (lambda: vit(gaug_grid=(5, 5)), 'GAug parameters of a 4 x 4 grid, .* for a 5 x 5 grid'),
    (lambda: vit(patch_size=16, img_size=64), 'patches of 8 x 8 pixels, .* of 16 x 16: weights fit'
                                              ' only models of the same patch size'),
    (lambda: vit(num_registers=4), 'in the file: reg_token'),
    (lambda: vit(arch=dict(ARCH, embed_dims=48)), r'\(1, 8\) in the file and \(1, 16\)'),
    (lambda: vit(arch=dict(ARCH, num_layers=4)), 'not in the file: blocks.3'),
    (lambda: vit(arch=dict(ARCH, num_layers=2)), 'not in the model: blocks.2'),
    (lambda: vit(gaug=False), 'not in the model: blocks.0.attn.gaug'),
    (lambda: vit(rope=True), 'not of this Eva.*not in the model: pos_embed'),
    (lambda: vit(class_token=False), 'not in the model: cls_token'),
    (lambda: vit(class_token=False, final_norm=False), 'not in the model: cls_token'),
    (swin, 'not of this SwinTransformer'),
])
def test_another_model_is_refused(build: Callable[[], TimmBackbone], message: str,
                                  classifier_file: str):
    backbone = build()
    before = {name: w.clone() for name, w in backbone.state_dict().items()}
    backbone.init_cfg = dict(type='Pretrained', checkpoint=classifier_file, prefix='backbone.')
    with pytest.raises(ValueError, match=f'classifier.pth: .*{message}'):
        backbone.init_weights()
    assert all(torch.equal(w, before[name]) for name, w in backbone.state_dict().items())


def test_average_pooled_tokens_are_another_model(tmp_path: Path):
    """Its norm comes after the pooling, so the backbone has none."""
    torch.save(vit(class_token=False, final_norm=False, out_type='tokens').state_dict(),
               tmp_path / 'avg.pth')
    with pytest.raises(ValueError, match='In the model but not in the file: norm.bias, norm.wei'):
        load_backbone(vit(class_token=False, out_type='tokens'), str(tmp_path / 'avg.pth'))


def test_relative_position_tables(tmp_path: Path):
    plain, gaug = swin(gaug=False, out_norm=False), swin(out_norm=False)
    torch.save(plain.state_dict(), tmp_path / 'plain.pth')
    torch.save(gaug.state_dict(), tmp_path / 'gaug.pth')
    report = load_backbone(swin(window_size=8, out_norm=False), str(tmp_path / 'plain.pth'))
    assert [text.rpartition('table ')[2] for text in report.resampled] \
        == ['(49, 3) -> (225, 3)'] * 2
    with pytest.raises(ValueError, match='gaug.pth: .*of another window: the file has 49 offsets'):
        load_backbone(swin(window_size=8, out_norm=False), str(tmp_path / 'gaug.pth'))


def test_prefix(classifier_file: str):
    with pytest.raises(ValueError, match="has no keys below prefix='encoder.'; its parts are: "
                                         r'backbone., head.. Set prefix \(init_cfg.prefix, --pre'):
        load_backbone(vit(), classifier_file, 'encoder.')
    with pytest.raises(ValueError, match="is a whole model; .*prefix='backbone.'"):
        load_backbone(vit(), classifier_file)


@pytest.mark.parametrize('error', [None, URLError('no route to host')])
def test_no_file_or_no_network(error: URLError | None, monkeypatch: pytest.MonkeyPatch):
    checkpoint = 'work_dirs/nowhere/epoch_300.pth'
    if error is not None:
        def fail(*args, **kwargs):
            raise error
        checkpoint = 'https://example.com/weights.pth'
        monkeypatch.setattr(CheckpointLoader, 'load_checkpoint', fail)
    backbone = vit(init_cfg=dict(type='Pretrained', checkpoint=checkpoint, prefix='backbone.'))
    with pytest.raises(ValueError, match=(
            f'{checkpoint} cannot be read .*--cfg-options model.backbone.init_cfg.checkpoint=FILE, '
            'or train from scratch with --cfg-options model.backbone.init_cfg=None')):
        backbone.init_weights()


@pytest.mark.parametrize('content', [
    [1, 2], nn.Linear(2, 2), {'model': nn.Linear(2, 2)}, {'epoch': 3, 'weights': {}},
    {'blocks.0.weight': torch.zeros(2).numpy()}, {'state_dict': {'epoch': 3}}],
    ids=['list', 'module', 'module in model', 'no tensors', 'numpy', 'numbers'])
def test_no_state_dict(content: object, tmp_path: Path):
    torch.save(content, tmp_path / 'odd.pth')
    with pytest.raises(ValueError, match='odd.pth holds no state dict: expected tensors by name'):
        read_state_dict(str(tmp_path / 'odd.pth'), trust=True)


def test_frozen_parameters_must_be_in_the_file(plain_file: str):
    model = vit(frozen_stages=1, init_cfg=dict(type='Pretrained', checkpoint=plain_file))
    with pytest.raises(ValueError, match='lacks blocks.0.attn.gaug.* set gaug=False, or freeze'):
        model.init_weights()
    # What the file lacks is trained here: only the stem is frozen.
    vit(frozen_stages=0, init_cfg=dict(type='Pretrained', checkpoint=plain_file)).init_weights()


def test_a_frozen_backbone_is_not_told_to_train_from_scratch():
    for frozen_stages, scratch in [(-1, True), (0, False)]:
        model = vit(frozen_stages=frozen_stages,
                    init_cfg=dict(type='Pretrained', checkpoint='no.pth'))
        with pytest.raises(ValueError, match='init_cfg.checkpoint=FILE') as raised:
            model.init_weights()
        assert ('from scratch' in str(raised.value)) == scratch


def test_a_type_with_a_scope_loads_strictly_too(classifier_file: str):
    model = vit(num_registers=4, init_cfg=dict(type='mmengine.Pretrained', prefix='backbone.',
                                               checkpoint=classifier_file))
    with pytest.raises(ValueError, match='reg_token'):
        model.init_weights()


@pytest.mark.parametrize('arguments', [dict(), dict(checkpoint='a.pth', checkpiont='b.pth')])
def test_arguments_of_init_cfg(arguments: dict):
    with pytest.raises(ValueError, match='expected type and checkpoint'):
        vit(init_cfg=dict(type='Pretrained', **arguments)).init_weights()


def test_a_file_that_tells_no_grid_is_said_so(tmp_path: Path):
    file = str(tmp_path / 'rope.pth')
    torch.save(vit(rope=True).state_dict(), file)
    note = 'nothing in the file tells the grid'
    assert note in load_backbone(vit(rope=True), file).note
    torch.save(vit().state_dict(), file)
    assert load_backbone(vit(), file).note == ''
    torch.save(swin().state_dict(), file)
    assert load_backbone(swin(), file).note == ''
