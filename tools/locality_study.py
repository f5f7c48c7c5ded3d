r"""Does the protocol or the architecture make attention local? Conditions over seeds, one report.

    python tools/locality_study.py configs/cutmix_locality/vit-compact_*_cifar100.py \
        --seeds 0 1 2 --gpus 0 1 2 3 --minutes 600

trains each config with each seed by tools/train.py, all conditions of a seed before the next one,
and writes summary.json, CSV files and locality_study.html into the work dir after each run. Each
config needs a LocalityHook. Killed at any moment and started again, it goes on: what is finished
is not repeated, the rest is resumed from its last checkpoint. Further conditions and seeds may be
added to a study.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from locat_mmseg.analysis.study_report import write_report
from locat_mmseg.analysis.study_results import PLAN, Condition, Study
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors
from locat_mmseg.openmmlab.launch import add_config_arguments, check_complete, read_config
from locat_mmseg.openmmlab.protocol_factors import read_protocol
from locat_mmseg.openmmlab.training_run import TrainingRun, train_all

TRAIN_TOOL = Path(__file__).with_name('train.py')
CHECKPOINTS = 'default_hooks.checkpoint.interval'


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('configs', nargs='*', help='config files, the reference first; their file '
                        'names name the conditions')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/locality_study'))
    parser.add_argument('--metric', default='accuracy/top1', help="the validation's score, as the "
                        'log names it (default accuracy/top1; segmentation: mIoU)')
    parser.add_argument('--minutes', type=float, default=float('inf'),
                        help='budget; what is not finished then can be resumed (default: none)')
    parser.add_argument('--gpus', nargs='+', metavar='N', default=[None],
                        help='GPUs, a run on each at a time (default: one run, which sees all)')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE',
                        help='overrides of each of these configs, as tools/train.py takes them')
    parser.add_argument('--report', action='store_true',
                        help='train nothing, write the report on what the work dir holds')
    args = parser.parse_args(argv)
    if args.report == bool(args.configs):
        parser.error('give the configs of the conditions, or --report with the --work-dir of a '
                     'study')
    return args


def evaluate(config: str, options: list[str]) -> Config:
    """The config with overrides as tools/train.py will see it."""
    parser = argparse.ArgumentParser()
    add_config_arguments(parser)
    args = parser.parse_args([config, *(['--cfg-options', *options] if options else [])])
    return read_config(args.config, args.cfg_options)


def read_condition(config: str, options: list[str], seeds: list[int]) -> Condition:
    """Read a config and check that it has what the study needs."""
    cfg = evaluate(config, options)
    check_complete(cfg, ('train_dataloader', 'val_dataloader'))
    if cfg.get('val_cfg') is None:
        raise UserError(f'{config} does not validate, so it gives no score: it needs '
                        'val_dataloader, val_cfg and val_evaluator')
    hooks = [hook.get('type') for hook in cfg.get('custom_hooks') or ()]
    if 'LocalityHook' not in hooks:
        raise UserError(f"{config} has no LocalityHook: add dict(type='LocalityHook', interval=10) "
                        f'to its custom_hooks, which are {hooks}')
    by_epoch = 'max_epochs' in cfg.train_cfg
    if by_epoch and not any(option.startswith(CHECKPOINTS) for option in options):
        options = [*options, f'{CHECKPOINTS}=1']  # a kill costs an epoch at most
    protocol = read_protocol(cfg)
    return Condition(config, options, protocol.digest, protocol.factors, protocol.group,
                     cfg.train_cfg['max_epochs' if by_epoch else 'max_iters'],
                     'epoch' if by_epoch else 'iteration', sorted(set(seeds)))


def plan(args: argparse.Namespace) -> Study:
    """The study that the work dir holds, with the conditions and seeds of a command line."""
    study = Study.read(args.work_dir) if (args.work_dir / PLAN).is_file() else \
        Study(args.work_dir, args.metric, {})
    if study.metric != args.metric:
        raise UserError(f'{args.work_dir} holds a study with --metric {study.metric}, not '
                        f'{args.metric}: give the same, or another --work-dir')
    named = {}
    for config in args.configs:
        other = named.setdefault(Path(config).stem, config)
        if other != config:
            raise UserError(f'{other} and {config} have the same file name, which names the '
                            'condition: rename one')
    for name, config in named.items():
        condition = read_condition(config, args.cfg_options, args.seeds)
        known = study.conditions.get(name)
        if known is not None and known.digest != condition.digest:
            raise UserError(f'{args.work_dir} holds runs of {name} with another content of its '
                            f'config, or other overrides ({" ".join(known.options) or "none"}): '
                            'give the same, or another --work-dir')
        if known is not None:
            condition.seeds = sorted({*known.seeds, *condition.seeds})
        study.conditions[name] = condition
        same = [other for other, one in study.conditions.items()
                if other != name and one.digest == condition.digest]
        if same:
            raise UserError(f'{name} and {same[0]} train the same: give one of them')
    study.write()
    return study


def train(study: Study, args: argparse.Namespace) -> list[str]:
    """Train what this command line asks for; why runs failed."""
    runs = [TrainingRun(study.conditions[name].config, study.work_dir(name, seed), seed,
                        study.metric, study.conditions[name].options)
            for seed in sorted(set(args.seeds)) for name in study.conditions
            if name in {Path(config).stem for config in args.configs}]

    def report(run: TrainingRun) -> None:
        print(f'{run.work_dir}: {run.failure or "finished"}', flush=True)
        write_report(Study.read(study.folder))  # another study may have added to the plan

    train_all(runs, TRAIN_TOOL, args.gpus, 60 * args.minutes, report)
    return [run.failure for run in runs if run.failure]


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        failures = [] if args.report else train(plan(args), args)
        print(write_report(Study.read(args.work_dir)))
        if failures:
            raise UserError(f'{len(failures)} failed, the first: {failures[0]}')


if __name__ == '__main__':
    main()
