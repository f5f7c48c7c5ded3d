"""A checkpoint fits the model as a whole, or the run ends before it begins."""
from collections import OrderedDict
from copy import deepcopy

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import save_checkpoint
from mmseg.models import SegTTAModel
from torch import nn
from user_errors import mistake

from locat_mmseg.openmmlab.checkpoint_checks import check_fit, check_resumable, localize_records
from locat_mmseg.openmmlab.hooks import StrictCheckpointHook, unwrap

RESNET = dict(type='mmpretrain.ResNet', depth=18, stem_channels=8, base_channels=8)


def small_model() -> nn.Module:
    model = nn.Module()
    model.backbone, model.head = nn.Linear(3, 2), nn.BatchNorm1d(2)
    return model


def test_whole_checkpoint_fits_in_any_wrapping():
    model, weights = small_model(), small_model().state_dict()
    for checkpoint in (dict(state_dict=weights), weights,
                       dict(state_dict={f'module.{k}': w for k, w in weights.items()})):
        check_fit(model, checkpoint, 'a.pth')
    del weights['head.num_batches_tracked']  # as in old files
    check_fit(model, OrderedDict(weights), 'a.pth')


def test_misfit_is_counted_named_and_explained():
    weights = small_model().state_dict()
    weights['backbone.weight'] = torch.zeros(2, 9)
    weights['head.other'] = weights.pop('head.bias')
    meta = dict(dataset_meta=dict(classes=('a', 'b', 'c')))
    text = mistake(check_fit, small_model(), dict(state_dict=weights, meta=meta), 'a.pth')
    assert text.startswith('checkpoint a.pth does not fit this Module: ')
    assert '1 missing (head.bias); 1 unexpected (head.other); 1 of another shape ' \
           '(backbone.weight)' in text
    assert 'looks like a classification model for 3 classes' in text
    assert "model.backbone.init_cfg=dict(type='Pretrained', checkpoint='a.pth', " \
           "prefix='backbone.')" in text


def test_bare_weights_are_recognised():
    text = mistake(check_fit, small_model(), {'blocks.0.w': torch.zeros(1)}, 'timm.pth')
    assert 'bare weights or another format (blocks)' in text
    assert "checkpoint='timm.pth')" in text


@pytest.mark.parametrize('content', [dict(model=small_model().state_dict()), torch.zeros(3)])
def test_other_content_is_refused(content):
    assert '6 missing (backbone.weight, backbone.bias, head.weight, ...)' in mistake(
        check_fit, small_model(), content, 'a.pth')


def test_hooks_of_the_model_still_translate():
    """A model may rename keys as it loads, as the backbones of this package do."""
    model = small_model()
    model.register_load_state_dict_pre_hook(
        lambda module, state, prefix, *_: state.update(
            {k.replace('trunk', 'backbone'): state.pop(k) for k in list(state)}))
    weights = {k.replace('backbone', 'trunk'): w for k, w in model.state_dict().items()}
    check_fit(model, dict(state_dict=weights), 'a.pth')


def test_refuses_to_test_another_model(runner_of, tmp_path):
    init_default_scope('mmpretrain')
    other = MODELS.build(dict(type='ImageClassifier', backbone=RESNET))
    save_checkpoint(dict(state_dict=other.state_dict()), str(tmp_path / 'other.pth'))
    text = mistake(runner_of(load_from=str(tmp_path / 'other.pth')).test)
    assert f'checkpoint {tmp_path}/other.pth does not fit this EncoderDecoder' in text


def test_fits_below_test_time_augmentation(runner_of, tmp_path):
    runner = runner_of()
    save_checkpoint(dict(state_dict=runner.model.state_dict()), str(tmp_path / 'own.pth'))
    wrapped = SegTTAModel(module=deepcopy(runner.model))
    assert unwrap(wrapped) is wrapped.module
    runner.model, runner._load_from = wrapped, str(tmp_path / 'own.pth')
    StrictCheckpointHook().after_load_checkpoint(runner, torch.load(tmp_path / 'own.pth'))


@pytest.mark.parametrize('kind', ['of another shape', 'missing'])
def test_another_head_on_purpose(runner_of, tmp_path, kind):
    """All but what may differ is loaded; that keeps its initial weights."""
    weights = {f'module.{k}': w + 1 for k, w in runner_of().model.state_dict().items()}
    for part in 'decode_head', 'auxiliary_head':
        for name in 'weight', 'bias':
            old = weights.pop(f'module.{part}.conv_seg.{name}')
            if kind == 'of another shape':
                weights[f'module.{part}.conv_seg.{name}'] = old.repeat(2, *[1] * (old.dim() - 1))
    path = str(tmp_path / 'other.pth')
    save_checkpoint(dict(state_dict=weights), path)
    hook = "\ncustom_hooks = [dict(type='StrictCheckpointHook', " \
           "may_differ=('decode_head.conv_seg', 'auxiliary_head'))]"
    changes = dict(load_from=path, optim_wrapper__optimizer__lr=0.)
    runner = runner_of(hook, **changes)
    runner.train()
    loaded = runner.model.state_dict()
    assert torch.equal(loaded['backbone.patch_embed.projection.weight'],
                       weights['module.backbone.patch_embed.projection.weight'])
    assert loaded['decode_head.conv_seg.weight'].shape[0] == 3
    # One log per runner, unless both began in the same second.
    log = ''.join(path.read_text() for path in (tmp_path / 'run').glob('*/*.log'))
    assert f'not loaded from {path}, as may_differ allows: ' in log
    for name in ('decode_head.conv_seg.weight', 'auxiliary_head.conv_seg.bias'):
        assert name in log
    assert "may_differ=('decode_head.conv_seg', 'auxiliary_head.conv_seg')" in mistake(
        runner_of(**changes).train)
    assert kind in mistake(runner_of(hook, **changes).test)  # random weights would be scored


def test_only_whole_names_may_differ():
    weights = small_model().state_dict()
    weights['head.bias'] = torch.zeros(5)
    assert 'of another shape (head.bias)' in mistake(check_fit, small_model(), weights, 'a.pth',
                                                     ('hea', 'head.b'))
    assert check_fit(small_model(), weights, 'a.pth', ('head.bias', )) == ['head.bias']
    assert 'head.bias' not in weights


def test_resumes_a_run_with_averaged_weights(runner_of, tmp_path):
    ema = "\ncustom_hooks = [*_base_.custom_hooks, dict(type='EMAHook', momentum=0.5)]"
    runner_of(ema).train()
    last = torch.load(tmp_path / 'run/iter_2.pth', weights_only=False)
    assert any(not torch.equal(last['state_dict'][key.removeprefix('module.')], w)
               for key, w in last['ema_state_dict'].items() if key.startswith('module.'))
    resumed = runner_of(ema, resume=True, load_from=str(tmp_path / 'run/iter_2.pth'),
                        train_cfg__max_iters=3)
    resumed.train()
    assert resumed.iter == 3


@pytest.mark.parametrize('checkpoint', [dict(state_dict={}), {'w': torch.zeros(1)}, torch.zeros(2)])
def test_weights_alone_cannot_be_resumed(checkpoint):
    text = mistake(check_resumable, checkpoint, 'a.pth')
    assert 'a.pth cannot be resumed, it has no meta' in text and 'load_from=a.pth' in text


def test_records_follow_a_copied_work_dir():
    hub = dict(runtime_info=dict(best_ckpt='/old/best_mIoU_iter_4.pth', last_ckpt='/old/iter_4.pth',
                                 best_score=0.5))
    localize_records(hub, '/new')
    assert hub['runtime_info'] == dict(best_ckpt='/new/best_mIoU_iter_4.pth',
                                       last_ckpt='/new/iter_4.pth', best_score=0.5)
