"""The folder of a study whose runs left numbers that are known."""
import itertools
import json
from pathlib import Path

from locat_mmseg.analysis import LayerLocality, Locality
from locat_mmseg.analysis.study_results import Condition, Study

FACTORS = ('AutoAugment', 'CutMix', 'label smoothing')
NAMES = {(): 'baseline', FACTORS[:1]: 'autoaugment', FACTORS[1:2]: 'cutmix',
         FACTORS[2:]: 'label-smoothing', FACTORS[1:]: 'no-autoaugment',
         (FACTORS[0], FACTORS[2]): 'no-cutmix', FACTORS[:2]: 'no-label-smoothing',
         FACTORS: 'modern'}
EIGHT = {f'vit_{name}_cifar100': list(factors) for factors, name in NAMES.items()}


def locality(lowest: float, num_layers: int = 2, num_heads: int = 2) -> Locality:
    """Distances rise by 0.01 a head and 0.1 a layer from the lowest; entropies are twice them."""
    layers = []
    for depth in range(num_layers):
        distances = [lowest + 0.1 * depth + 0.01 * head for head in range(num_heads)]
        layers.append(LayerLocality(
            f'blocks.{depth}.attn', depth, False, [(8, 8)], distances, distances, distances,
            [2 * distance for distance in distances]))
    return Locality(5, layers)


def write_run(study: Study, name: str, seed: int, lowest: dict[int, float], score: float | None,
              state: str = 'finished', **shape: int) -> None:
    """What a run leaves in its work dir.

    Args:
        lowest: distance by step; an epoch has ten steps.
        score: of the validation after the last epoch.
        state: 'finished' or 'failed', a file that is written; '' for neither.
        shape: `num_layers` and `num_heads`.
    """
    folder = study.work_dir(name, seed)
    (folder / '20260101/vis_data').mkdir(parents=True)
    (folder / 'locality.jsonl').write_text(''.join(json.dumps(
        dict(epoch=step // 10, iter=step, **locality(value, **shape).to_dict())) + '\n'
        for step, value in lowest.items()))
    scalars = [dict(loss=1., step=1)]
    if score is not None:
        scalars.append({study.metric: score, 'step': max(lowest) // 10})
    (folder / '20260101/vis_data/scalars.json').write_text(''.join(
        json.dumps(line) + '\n' for line in scalars))
    if state:
        (folder / state).write_text('error: it broke' if state == 'failed' else '')


def plan_study(folder: Path, factors: dict[str, list[str]], seeds: list[int], length: int = 4
               ) -> Study:
    """A study of conditions that differ in factors alone, planned and not begun."""
    study = Study(folder, 'accuracy/top1', {
        name: Condition(f'{name}.py', [], digest=name, factors=on, group='one', length=length,
                        unit='epoch', seeds=list(seeds)) for name, on in factors.items()})
    study.write()
    return study


def finished_study(folder: Path, seeds: list[int], factors: dict[str, list[str]] = EIGHT,
                   **shape: int) -> Study:
    """Minimum distance 0.4, and with CutMix falling to 0.1; 6 points of accuracy each for
    AutoAugment and CutMix, 2 less for both together, a point more a seed."""
    study = plan_study(folder, factors, seeds)
    for (name, on), seed in itertools.product(factors.items(), seeds):
        lowest = 0.1 if 'CutMix' in on else 0.4
        score = 40. + 6 * ('AutoAugment' in on) + 6 * ('CutMix' in on) + seed
        score -= 2 * ({'AutoAugment', 'CutMix'} <= set(on))
        write_run(study, name, seed, {0: 0.41, 10: 0.4 + 0.001 * seed, 20: (0.4 + lowest) / 2,
                                      40: lowest + 0.002 * seed}, score, **shape)
    return study
