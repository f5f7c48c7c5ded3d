"""Weighted k-NN against scikit-learn and by hand."""
import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from locat_mmseg.analysis import knn
from locat_mmseg.analysis.knn import knn_scores, topk_accuracy


def clusters(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 5
    centres = torch.randn(5, 8, generator=torch.Generator().manual_seed(9))
    return centres[labels] + torch.randn(count, 8, generator=generator), labels


@pytest.mark.parametrize('k, temperature', [(1, .07), (20, .07), (7, .5), (103, 1.)])
@pytest.mark.parametrize('queries_at_once', [1024, 6])
def test_as_scikit_learn(monkeypatch, k, temperature, queries_at_once):
    monkeypatch.setattr(knn, 'QUERIES', queries_at_once)
    (features, labels), (queries, truth) = clusters(103, 0), clusters(41, 1)
    oracle = KNeighborsClassifier(
        k, metric='cosine', weights=lambda distance: np.exp((1 - distance) / temperature))
    oracle.fit(features.double().numpy(), labels.numpy())
    scores = knn_scores(queries, features, labels, 5, k, temperature)
    np.testing.assert_allclose(scores, oracle.predict_proba(queries.double().numpy()), atol=1e-5)
    assert topk_accuracy(scores, truth) == pytest.approx(
        100 * oracle.score(queries.double().numpy(), truth.numpy()))


def test_length_of_features_does_not_matter():
    (features, labels), (queries, _) = clusters(50, 0), clusters(9, 1)
    lengths = torch.linspace(.1, 30, 50)[:, None]
    torch.testing.assert_close(knn_scores(queries * 7, features * lengths, labels, 5),
                               knn_scores(queries, features, labels, 5))


def test_weights_by_hand():
    """Cosines 1 and 0 at temperature 0.5: weights e^2 and 1."""
    features = torch.tensor([[2., 0.], [0., 3.], [-1., 0.]])
    scores = knn_scores(torch.tensor([[1., 0.]]), features, torch.tensor([1, 0, 2]), 3, k=2,
                        temperature=.5)
    share = np.exp(2) / (np.exp(2) + 1)
    np.testing.assert_allclose(scores, [[1 - share, share, 0]], rtol=1e-6)


def test_topk_accuracy_by_hand():
    scores = torch.tensor([[.5, .3, .2], [.5, .3, .2], [.5, .3, .2], [.1, .2, .7]])
    labels = torch.tensor([0, 1, 2, 0])
    assert [topk_accuracy(scores, labels, k) for k in (1, 2, 3, 5)] == [25., 50., 100., 100.]


@pytest.mark.parametrize('changes, reason', [
    (dict(k=51), 'k=51 neighbours of 50 stored features'),
    (dict(temperature=0.), 'temperature=0.0: expected a positive number'),
    (dict(num_classes=4), 'labels from 0 to 4: expected 0 to 3 for 4 classes'),
    (dict(labels=torch.zeros(49, dtype=torch.long)), r'expected \(M, C\) and \(M,\)'),
])
def test_mistakes(changes, reason):
    features, labels = clusters(50, 0)
    with pytest.raises(ValueError, match=reason):
        knn_scores(**{**dict(queries=features, features=features, labels=labels, num_classes=5),
                      **changes})
