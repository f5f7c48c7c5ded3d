"""The linear probe against scikit-learn's logistic regression."""
import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F

from locat_mmseg.analysis import linear_probe
from locat_mmseg.analysis.linear_probe import choose_l2, fit_linear_probe


def problem(count=120, classes=4, channels=6, noise=2., seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centres = torch.randn(classes, channels, generator=torch.Generator().manual_seed(9)) * 3
    scales = torch.logspace(-2, 2, channels)
    noise = noise * torch.randn(count, channels, generator=generator)
    return (centres[labels] + noise) * scales, labels


@pytest.mark.parametrize('dtype, tolerance', [(torch.float64, 1e-4), (torch.float32, 1e-2)])
@pytest.mark.parametrize('l2', [1e-3, 1e-1])
def test_as_scikit_learn(dtype, tolerance, l2):
    features, labels = problem()
    scaler = StandardScaler().fit(features.double().numpy())
    oracle = LogisticRegression(C=1 / (l2 * len(labels)), tol=1e-10, max_iter=10000)
    oracle.fit(scaler.transform(features.double().numpy()), labels.numpy())
    probe = fit_linear_probe(features.to(dtype), labels, 4, l2)
    np.testing.assert_allclose(probe.weight, oracle.coef_, atol=tolerance)
    # Logits are free up to a constant.
    np.testing.assert_allclose(probe.bias - probe.bias.mean(),
                               oracle.intercept_ - oracle.intercept_.mean(), atol=tolerance)
    queries, _ = problem(seed=1)
    np.testing.assert_allclose(
        probe.scores(queries.to(dtype)).softmax(dim=1),
        oracle.predict_proba(scaler.transform(queries.double().numpy())), atol=tolerance)


def test_a_constant_channel_is_harmless():
    features, labels = problem()
    constant = torch.cat([features, torch.full((120, 1), 3.)], dim=1)
    probe, with_it = fit_linear_probe(features, labels, 4), fit_linear_probe(constant, labels, 4)
    torch.testing.assert_close(with_it.scores(constant), probe.scores(features), atol=1e-3,
                               rtol=1e-3)


def test_the_same_classifier_on_features_as_they_come():
    features, labels = problem()
    features = features.double()
    probe = fit_linear_probe(features, labels, 4)
    weight, bias = probe.on_raw_features()
    torch.testing.assert_close(features @ weight.T + bias, probe.scores(features))
    assert not torch.allclose(weight, probe.weight)


def test_a_class_without_examples_scores_lowest():
    features, labels = problem()
    assert fit_linear_probe(features, labels, 5).scores(features).argmin(dim=1).eq(4).all()


def test_the_penalty_that_is_best_on_held_out_images_is_chosen(monkeypatch):
    """Features are one-hot labels and a row number; the probe is right for one penalty only."""
    labels = torch.arange(50) % 4
    features = torch.cat([F.one_hot(labels, 4), torch.arange(50)[:, None]], dim=1).double()
    fitted, scored = [], []

    class Probe:
        def __init__(self, l2):
            self.sign = 1 if l2 == .3 else -1

        def scores(self, part):
            scored.append(set(part[:, 4].tolist()))
            return self.sign * part[:, :4]

    def fit(part, part_labels, num_classes, l2):
        fitted.append(set(part[:, 4].tolist()))
        return Probe(l2)

    monkeypatch.setattr(linear_probe, 'fit_linear_probe', fit)
    assert choose_l2(features, labels, 4, [1., .3, .1]) == .3
    assert [len(rows) for rows in fitted] == [45] * 3 and [len(rows) for rows in scored] == [5] * 3
    assert not any(train & test for train, test in zip(fitted, scored))


def test_the_same_seed_holds_out_the_same():
    seen = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(3)
        choose_l2(*problem(), 4, [1.], generator)
        seen.append(generator.get_state())
    assert torch.equal(*seen)


@pytest.mark.parametrize('changes, reason', [
    (dict(l2=0.), 'l2=0.0: expected a positive number'),
    (dict(num_classes=3), 'labels from 0 to 3: expected 0 to 2 for 3 classes'),
])
def test_mistakes(changes, reason):
    features, labels = problem()
    with pytest.raises(ValueError, match=reason):
        fit_linear_probe(features, labels, **{'num_classes': 4, **changes})


def test_too_few_to_hold_some_out():
    features, labels = problem(count=4)
    with pytest.raises(ValueError, match='4 training features are too few to choose l2 on 10%'):
        choose_l2(features, labels, 4, [1., 2.])
