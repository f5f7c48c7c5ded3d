r"""Pre-train, then probe, each of plain, +GAug, +PRR and +both, over seeds: a table with spread.

    python tools/ablation_study.py configs/quickstart/locatvit_shapes.py \
        configs/quickstart/probe_locatvit_shapes.py --seeds 0 1 2

Runs that are done are not repeated: started again, the study goes on at the last checkpoint, with
the same configs and options, which are in settings.json. The table (Markdown) and every number
(JSON) are written to the work dir after each run.
"""
import argparse
import json
from pathlib import Path
from statistics import mean, stdev

from locat_mmseg.analysis.study_results import read_scores
from locat_mmseg.openmmlab.training_run import TrainingRun, train_all

VARIANTS = {  # the paper's ablation: arXiv 2603.04892
    'ViT': dict(gaug=False, prr=False),
    '+ GAug': dict(gaug=True, prr=False),
    '+ PRR': dict(gaug=False, prr=True),
    '+ both (LocAt)': dict(gaug=True, prr=True),
}
METRICS = {'pretrain': 'accuracy/top1', 'probe': 'mIoU'}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('pretrain', help='classification config with a PRRPool neck')
    parser.add_argument('probe', help='segmentation config with a frozen backbone')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/ablation_study'))
    parser.add_argument('--pretrain-options', nargs='+', default=[], metavar='KEY=VALUE',
                        help='--cfg-options of each pre-training')
    parser.add_argument('--probe-options', nargs='+', default=[], metavar='KEY=VALUE',
                        help='--cfg-options of each probe')
    return parser.parse_args()


def train(config: str, work_dir: Path, seed: int, options: list[str]) -> float:
    """Run tools/train.py unless it is finished in the work dir; the last score in percent."""
    run = TrainingRun(config, work_dir, seed, METRICS[work_dir.name], options)
    train_all([run], Path(__file__).with_name('train.py'))
    if run.failure:
        raise SystemExit(f'error: {run.failure}')
    scores = read_scores(work_dir, run.metric)
    return scores[max(scores)]


def run_variant(args: argparse.Namespace, work_dir: Path, seed: int, gaug: bool,
                prr: bool) -> dict[str, float]:
    """Pre-train and probe one variant; its metrics."""
    pretrain, probe = work_dir / 'pretrain', work_dir / 'probe'
    gaug_option = f'model.backbone.gaug={gaug}'
    top1 = train(args.pretrain, pretrain, seed,
                 [gaug_option, f'model.neck.refine={prr}', *args.pretrain_options])
    checkpoint = pretrain / Path((pretrain / 'last_checkpoint').read_text()).name
    miou = train(args.probe, probe, seed, [
        gaug_option, f'model.backbone.init_cfg.checkpoint={checkpoint}', *args.probe_options])
    return {'pretrain': top1, 'probe': miou}


def check_settings(args: argparse.Namespace) -> None:
    """Refuse a work dir that holds runs of other configs or options; note those of this study."""
    path = args.work_dir / 'settings.json'
    settings = {name: getattr(args, name) for name in ('pretrain', 'probe', 'pretrain_options',
                                                       'probe_options')}
    noted = json.loads(path.read_text()) if path.is_file() else settings
    other = [f'{name} {noted.get(name)}' for name in settings if noted.get(name) != settings[name]]
    if other:
        raise SystemExit(f'error: {args.work_dir} holds runs of {", ".join(other)}: give the same, '
                         'or another --work-dir')
    args.work_dir.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2))


def spread(values: list[float]) -> str:
    if not values:
        return 'not run'
    deviation = f' ± {stdev(values):.2f}' if len(values) > 1 else ''
    return f'{mean(values):.2f}{deviation} ({len(values)})'


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Markdown: mean, standard deviation and number of seeds of each variant."""
    lines = ['| variant | top-1 (%) | probe mIoU (%) |', '|---|---|---|']
    for variant in VARIANTS:
        runs = results.get(variant, {}).values()
        cells = [spread([run[name] for run in runs]) for name in METRICS]
        lines.append(f'| {variant} | {" | ".join(cells)} |')
    return '\n'.join(lines) + '\n'


def main() -> None:
    args = parse_args()
    check_settings(args)
    results_file = args.work_dir / 'results.json'
    results = json.loads(results_file.read_text()) if results_file.is_file() else {}
    for seed in args.seeds:  # all variants of a seed before the next seed: a usable table early
        for number, (variant, switches) in enumerate(VARIANTS.items()):
            if str(seed) in results.setdefault(variant, {}):
                continue
            work_dir = args.work_dir / f'variant{number}_seed{seed}'
            results[variant][str(seed)] = run_variant(args, work_dir, seed, **switches)
            results_file.write_text(json.dumps(results, indent=2))
            (args.work_dir / 'table.md').write_text(table(results))
            print(f'{variant}, seed {seed}: {results[variant][str(seed)]}', flush=True)
    print(table(results))


if __name__ == '__main__':
    main()
