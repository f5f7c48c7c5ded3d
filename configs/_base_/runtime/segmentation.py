# Everything about a segmentation run that is neither model, data nor schedule.
#
# A schedule builds on this file (_base_ = ['../runtime/segmentation.py'], because two bases of a
# config must not set the same key) and sets train_cfg, val_cfg, test_cfg, optim_wrapper,
# param_scheduler, auto_scale_lr and default_hooks.checkpoint; one by epochs also sets
# log_processor.by_epoch and default_hooks.logger.log_metric_by_epoch to True.
# A data set gives the tta_pipeline that belongs to tta_model.
default_scope = 'mmseg'
custom_imports = dict(imports=['locat_mmseg'], allow_failed_imports=False)

env_cfg = dict(
    cudnn_benchmark=True,  # crops are all of one size
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'))
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    visualization=dict(type='SegVisualizationHook'))
custom_hooks = [dict(type='PreflightHook'), dict(type='StrictCheckpointHook')]

# TensorBoard or W&B: add dict(type='TensorboardVisBackend') or dict(type='WandbVisBackend').
vis_backends = [dict(type='LocalVisBackend')]
# Without a name the Runner gives it the run's, so that two runs in a process do not share it.
visualizer = dict(type='SegPanelVisualizer', vis_backends=vis_backends)
log_processor = dict(by_epoch=False)
log_level = 'INFO'

load_from = None
resume = False
tta_model = dict(type='SegTTAModel')
