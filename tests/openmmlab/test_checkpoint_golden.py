"""The reference's weights through init_cfg, from every kind of file: features and logits."""
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from golden import Golden, load_golden, relative_error
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from locat_mmseg.addon import weight_sources
from locat_mmseg.openmmlab.backbones import LocAtSwin, LocAtViT, TimmBackbone
from locat_mmseg.openmmlab.necks import PRRPool

VIT_KWARGS = {
    'vit': {},
    'vit_gaug_only': {},
    'vit_prr_only': dict(gaug=False),
    'vit_avgpool': dict(class_token=False, final_norm=False),
    'regvit': dict(num_registers=4),
    'ropevit': dict(rope=True),
    'jumbo': {},
}
ARCH = {'jumbo': dict(num_class_tokens=3, jumbo_mlp_ratio=2)}
NECKS = {
    'vit': dict(),
    'vit_gaug_only': dict(refine=False),
    'vit_prr_only': dict(),
    'vit_avgpool': dict(pool='avg', num_prefix_tokens=0, norm=True),
    'regvit': dict(num_prefix_tokens=5),
    'ropevit': dict(),
    'jumbo': dict(num_prefix_tokens=3, num_class_tokens=3),
    'swin': dict(embed_dims=48, num_heads=4, pool='avg', num_prefix_tokens=0),
}


def build_golden(name: str, init_cfg: dict, **kwargs) -> TimmBackbone:
    """The backbone of a golden file, with its weights."""
    meta = load_golden(name).meta
    if name == 'swin':
        backbone = LocAtSwin(
            dict(embed_dims=meta['embed_dim'], depths=meta['depths'], num_heads=meta['num_heads']),
            img_size=meta['img_size'], out_norm=False, init_cfg=init_cfg,
            **{'out_indices': (0, 1), **kwargs})
    else:
        backbone = LocAtViT(
            dict(embed_dims=meta['embed_dim'], num_layers=meta['depth'],
                 num_heads=meta['num_heads'], **ARCH.get(name, {})), img_size=meta['img_size'],
            patch_size=meta['patch_size'], init_cfg=init_cfg, **VIT_KWARGS[name],
            **{'out_indices': (0, 1, 2), **kwargs})
    backbone.init_weights()
    return backbone.eval()


def assert_features(backbone: TimmBackbone, golden: Golden) -> None:
    """Maps of every image in the golden file."""
    for image, x in golden.inputs.items():
        size = image.removeprefix('image_')
        maps = backbone(x)
        expected = {name for name in golden.outputs if name.startswith('feat') and size in name}
        assert {f'feat{i}_{size}' for i in range(len(maps))} == expected
        for i, feature in enumerate(maps):
            assert relative_error(feature, golden.outputs[f'feat{i}_{size}']) < 1e-5, (i, size)


@pytest.mark.parametrize('name', NECKS)
def test_golden_features_and_logits(name: str, tmp_path: Path):
    golden = load_golden(name)
    torch.save(golden.state, tmp_path / 'reference.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'reference.pth'))
    if name != 'jumbo':  # its file holds logits only
        assert_features(build_golden(name, init_cfg), golden)
    backbone = build_golden(name, init_cfg, out_type='tokens')
    neck = PRRPool(**{'embed_dims': 48, 'num_heads': 3, **NECKS[name]}).eval()
    neck.fc_norm.load_state_dict({key.removeprefix('fc_norm.'): weight
                                  for key, weight in golden.state.items()
                                  if key.startswith('fc_norm.')})
    weight, bias = (next(w for key, w in golden.state.items()
                         if key.startswith('head.') and key.endswith(kind))
                    for kind in ('weight', 'bias'))
    for image, x in golden.inputs.items():
        logits = F.linear(neck(backbone(x))[0], weight, bias)
        expected = golden.outputs[image.replace('image', 'logits')]
        assert relative_error(logits, expected) < 1e-5, image


def below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """A whole model: everything but the head moves below ``prefix``."""
    return {name if name.startswith('head.') else prefix + name: w for name, w in state.items()}


FILES: dict[str, Callable[[dict, Path], dict]] = {
    'bare': lambda state, path: torch.save(state, path),
    'model': lambda state, path: torch.save(dict(model=state, epoch=3), path),
    'model_ema': lambda state, path: torch.save(dict(model_ema=state), path),
    'module.': lambda state, path: torch.save(
        {f'module.{name}': w for name, w in state.items()}, path),
    'state_dict backbone.': lambda state, path: torch.save(
        dict(meta={}, state_dict=below(state, 'backbone.')), path),
    'module.backbone.': lambda state, path: torch.save(dict(state_dict={
        f'module.{name}': w for name, w in below(state, 'backbone.').items()}), path),
    'model backbone.': lambda state, path: torch.save(
        dict(model=below(state, 'backbone.')), path),
    'own names': lambda state, path: torch.save(below(state, 'backbone.model.'), path),
    'safetensors': lambda state, path: save_file(state, path),
    'safetensors backbone.': lambda state, path: save_file(below(state, 'backbone.'), path),
}


@pytest.mark.parametrize('kind', FILES)
@pytest.mark.parametrize('name', ['vit', 'swin'])
def test_golden_features_from_every_kind_of_file(name: str, kind: str, tmp_path: Path):
    golden = load_golden(name)
    path = tmp_path / ('w.safetensors' if 'safetensors' in kind else 'w.pth')
    FILES[kind](golden.state, path)
    prefixed = 'backbone.' in kind or kind == 'own names'
    backbone = build_golden(name, dict(type='Pretrained', checkpoint=str(path),
                                       prefix='backbone.' if prefixed else None))
    assert_features(backbone, golden)


@pytest.mark.parametrize('name', ['vit', 'swin'])
def test_golden_features_from_a_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The way of the weights that the authors publish; with the prefix of the configs here."""
    golden = load_golden(name)
    save_file(golden.state, tmp_path / 'model.safetensors')
    monkeypatch.setattr(weight_sources, 'hub_file', lambda repository, file: str(tmp_path / file))
    assert_features(build_golden(name, dict(type='Pretrained', checkpoint='hf-hub:owner/locat',
                                            prefix='backbone.')), golden)
