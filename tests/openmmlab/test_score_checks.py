"""Scores that would be wrong, or asked for by a wrong name, end before a run begins."""
import cv2
import pytest
from mmengine.runner import Runner
from user_errors import mistake

VOID = ('model.decode_head.ignore_index is 11, but {} is 255: void pixels have one label; set '
        '--cfg-options {}=11, or model.decode_head.ignore_index to that of the label maps')


def test_void_label_of_heads_and_padding(runner_of):
    heads = dict(model__decode_head__ignore_index=11, val_evaluator__ignore_index=11)
    key = 'model.auxiliary_head.ignore_index'
    padded = dict(model__data_preprocessor__seg_pad_val=11)
    assert mistake(runner_of(**heads, **padded).train) == VOID.format(key, key)
    key = 'model.data_preprocessor.seg_pad_val'
    heads.update(model__auxiliary_head__ignore_index=11)
    assert mistake(runner_of(**heads).train) == VOID.format(key, key)


def test_void_label_of_metrics(runner_of):
    changes = dict(model__decode_head__ignore_index=11)
    key = 'test_evaluator.ignore_index'
    assert mistake(runner_of(**changes).test) == VOID.format(key, key)
    several = "\nval_evaluator = [dict(type='IoUMetric', ignore_index=11), " \
              "dict(type='CommonestClassMetric')]"
    key = 'val_evaluator.1.ignore_index'
    assert mistake(runner_of(several, **changes).val) == VOID.format(key, key)
    changes.update(model__auxiliary_head__ignore_index=11, model__data_preprocessor__seg_pad_val=11)
    assert mistake(runner_of(several, **changes).train) == VOID.format(key, key)


def test_one_void_label_throughout_passes(runner_of, segmentation_data):
    for path in segmentation_data.glob('annotations/*/*.png'):
        labels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        labels[labels == 255] = 11
        cv2.imwrite(str(path), labels)
    runner_of(model__decode_head__ignore_index=11, model__auxiliary_head__ignore_index=11,
              model__data_preprocessor__seg_pad_val=11, val_evaluator__ignore_index=11).train()


@pytest.mark.parametrize('changes, reason', [
    (dict(val_evaluator__iou_metrics=['mIoU', 'mIou']),
     "val_evaluator.iou_metrics has 'mIou', but there are mIoU, mDice, mFscore"),
    (dict(model__test_cfg__mode='whle'),
     "model.test_cfg.mode is 'whle', but there are 'whole' and 'slide'")])
def test_scores_and_modes_that_do_not_exist(runner_of, changes, reason):
    for run in Runner.train, Runner.val:
        assert mistake(run, runner_of(**changes)).startswith(reason)
