"""The locality of one model as a table, and as a page."""
from matplotlib.figure import Figure

from .locality_plots import DISTANCE_LABEL, plot_depth, plot_heads, plot_plane, plot_shares
from .locality_results import LayerLocality, Locality
from .report import figures, heading, page, paragraph, table
from .tables import number

# Column, attribute of `LayerLocality`; left out where no layer has it.
COLUMNS = {
    'distance / diagonal': 'distance_diagonal', 'in patches': 'distance_patches',
    'in pixels': 'distance_pixels', 'entropy': 'entropy', 'class share': 'class_share',
    'register share': 'register_share', 'sigma rows (patches)': 'gaussian_sigma_rows',
    'sigma columns (patches)': 'gaussian_sigma_cols', 'alpha': 'gaussian_alpha',
    'Gaussian distance / diagonal': 'gaussian_distance_diagonal',
}

DEFINITIONS = (
    'Attention is that among patches: rows and columns of class and register tokens are left out '
    'and each row is renormalised to 1; the share that goes to those tokens is given beside it. '
    'Distance: attention-weighted mean of the Euclidean distance between patch centres, mean over '
    "queries and images. Divided by the grid's diagonal it is 0 for a head whose patches look at "
    'themselves only; uniform attention on 8 x 8 patches has 0.418. Entropy: divided by that of '
    'uniform attention, 0 for one patch, 1 for all alike. The measures follow arXiv 2605.16390; '
    'dividing by the diagonal is a choice made here.')
RANGE = 'Mean over heads; smallest and largest distance of a head.'
WINDOWS = ('This model attends inside windows: distances are those inside a window, over the '
           "window's diagonal, without padding and without pairs parted by the shift. They do not "
           'compare with those of models that attend to the whole image.')


def layer_rows(locality: Locality) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the table by layer: the mean over heads, and the range of distances."""
    present = {column: measure for column, measure in COLUMNS.items()
               if any(getattr(layer, measure) for layer in locality.layers)}
    header = ['layer', 'name', 'heads', *present, 'smallest', 'largest']
    return header, [[layer.depth, layer.name, len(layer.entropy),
                     *(mean(getattr(layer, measure)) for measure in present.values()),
                     min(layer.distance_diagonal), max(layer.distance_diagonal)]
                    for layer in locality.layers]


def mean(values: list[float] | None) -> float | None:
    """The mean of a list; None of none."""
    return sum(values) / len(values) if values else None


def locality_page(locality: Locality, title: str, facts: dict[str, object]) -> str:
    """A page on one model.

    Args:
        title: of the page.
        facts: what was measured on what, shown as a table.
    """
    layers = locality.layers
    lowest = min(layers, key=lambda layer: min(layer.distance_diagonal))
    facts = {**facts, 'images': locality.num_images,
             'grids': grids_of(layers), 'smallest distance / diagonal':
             f'{number(locality.min_distance_diagonal)} (layer {lowest.depth})'}
    return page(title, [
        table(['what', 'value'], facts.items()), heading('Figures'),
        figures(locality_figures(locality)), heading('By layer'),
        table(*layer_rows(locality), RANGE), heading('What is measured'), *definitions(layers)])


def definitions(layers: list[LayerLocality]) -> list[str]:
    """Paragraphs on what is measured in these layers."""
    windowed = any(layer.windowed for layer in layers)
    return [paragraph(DEFINITIONS), *([paragraph(WINDOWS)] if windowed else [])]


def locality_figures(locality: Locality) -> dict[str, Figure]:
    """The figures of a model by their captions."""
    layers = locality.layers
    drawn = {
        'Heads in the plane of distance and entropy, coloured by layer':
        plot_plane(locality),
        'Attention distance by layer: a dot a head, the line their mean':
        plot_heads(locality, 'distance_diagonal', DISTANCE_LABEL),
        'Normalised entropy by layer: a dot a head, the line their mean':
        plot_heads(locality, 'entropy', 'normalised entropy'),
    }
    if layers[0].class_share or layers[0].register_share:
        drawn['Where the attention of patches goes, by layer'] = plot_shares(locality)
    if locality.class_alignment:
        drawn['Cosine of patch tokens with the class token after each block'] = plot_depth(
            locality.class_alignment, 'cosine with class token')
    if locality.receptive_area:
        drawn['Share of the image that holds half of the gradient of the central feature, after '
              'each block or stage'] = plot_depth(locality.receptive_area, 'share of the image')
    if layers[0].gaussian_alpha:
        drawn["Distance under LocAt's Gaussian alone, by layer"] = plot_heads(
            locality, 'gaussian_distance_diagonal', 'Gaussian distance / diagonal')
        drawn["Strength of LocAt's Gaussian by layer"] = plot_heads(
            locality, 'gaussian_alpha', 'alpha')
    return drawn


def grids_of(layers: list[LayerLocality]) -> str:
    """The grids that the layers saw, in patches, 'h x w'."""
    grids = sorted({tuple(grid) for layer in layers for grid in layer.grids})
    shown = ', '.join(f'{height} x {width}' for height, width in grids[:6])
    return shown + (f' and {len(grids) - 6} more' if len(grids) > 6 else '')
