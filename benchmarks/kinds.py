"""The kinds of records: the types of their details.

A reader selects records by type (`records.of_kind`). A field may be added with a default; renaming
one means rewriting the published records.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

K = TypeVar("K", bound="Details")
Interval = tuple[float, float]
Json = dict[str, Any]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A structure within a record; unknown fields are errors."""


class Details(Part, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Base of all kinds."""

    assumptions: list[str] = []  # of predicted and counted values
    interval: dict[str, Interval] = {}  # 95 % intervals of values, by column
    missing: dict[str, str] = {}  # scores that could not be computed, by name, and why

    @property
    def slot(self) -> tuple[object, ...]:
        """Fields of this kind that distinguish measurements, besides those of all records."""
        return ()


class OfDevice(Details, frozen=True, kw_only=True):
    """Base of kinds that depend on the device: a record replaces only those of its device."""


def as_kind(kind: type[K], details: Details, **fields: Any) -> K:
    """Convert details to another kind: copy the shared fields, and set ``fields``."""
    both = [name for name in kind.__struct_fields__ if hasattr(details, name)]
    return kind(**{**{name: getattr(details, name) for name in both}, **fields})


# --- correctness and counts
class Equation(Part, frozen=True, kw_only=True, omit_defaults=True):
    """An equation or listing, an entry of `benchmarks.equations.entries`."""

    paper: str
    number: int | str
    oracle: str | None
    counterpart: str | None
    properties: list[str]
    formula: list[str] = []
    kind: str | None = None
    definition: str | None = None
    notes: list[Json] = []


class Equations(Details, frozen=True, kw_only=True, tag="equations"):
    """A paper's equations."""

    entries: list[Equation]


class Verified(Part, frozen=True, kw_only=True, omit_defaults=True):
    """One implementation of one operator in one dtype: its worst error and the tolerance.

    Both are relative to the largest entry of the oracle's result, and None if not finite. ``what``
    is "output", including padded batches and all regimes, or "gradient". ``failures`` have the
    property, message and case of each failure.
    """

    operator: str
    equations: dict[str, list[int | str]]
    numbers: str
    what: str
    implementation: str
    dtype: str
    device: str
    cases: int
    worst: float | None
    bound: float | None
    passed: bool
    failures: list[dict[str, str]] = []


class Verification(Details, frozen=True, kw_only=True, tag="verification"):
    """Implementations compared with the oracle."""

    rows: list[Verified]


class Curve(Part, frozen=True, kw_only=True):
    """Multiply-accumulates (10^6) by expansion coefficient, a line for each implementation."""

    coefficients: list[int]
    lines: dict[str, list[float]]


class Operations(Details, frozen=True, kw_only=True, tag="operations"):
    """A row of v2's Table VI: multiply-accumulates of the factored form, and true FLOPs."""

    factored: float
    true_flops: float
    lengths: str
    curve: Curve


class Parameters(Details, frozen=True, kw_only=True, tag="parameters"):
    """Parameters counted for v2's Table VII."""


class Words(Details, frozen=True, kw_only=True, tag="words"):
    """Word counts of captions: the most frequent words, and how many captions are left out."""

    commonest: list[tuple[str, int]]
    left_out: dict[str, int]


# --- speed
class Case(Part, frozen=True, kw_only=True):
    """A timed, counted or predicted case: `benchmarks.perf.cases.case.Case` as JSON."""

    subject: str
    implementations: list[str]
    sizes: Json
    precision: str


class Measured(OfDevice, frozen=True, kw_only=True):
    """An implementation of a case, timed or counted together with the case's baseline."""

    case: Case
    row: str
    implementation: str
    baseline: str
    unavailable: dict[str, str] = {}


class Timing(Measured, frozen=True, kw_only=True, tag="timing"):
    """Seconds a call, one sample for each round; ``again`` are the A/A twin's."""

    verdict: str
    samples: list[float] = []
    twin: str | None = None
    again: list[float] | None = None
    first_call_s: float | None = None
    jumps: int | None = None
    cache: str | None = None


class Counted(Measured, frozen=True, kw_only=True, tag="counted"):
    """A case that counts instead of timing calls: bytes a vector, a device's ceilings."""


class Revision(Part, frozen=True, kw_only=True):
    """A commit, and whether the working tree had uncommitted changes."""

    commit: str
    dirty: bool


class Comparison(OfDevice, frozen=True, kw_only=True, tag="comparison"):
    """One benchmark of two revisions; ``planted`` is an artificial slowdown that tests it."""

    benchmark: str
    implementation: str
    case: Case
    revision: Revision
    against: Revision | None
    verdict: str
    regressed: bool
    grown: dict[str, int]
    unsteady: list[str]
    wrong: list[str]
    refused: str | list[str]
    processes: int
    thrown: int
    smallest: float
    clock: str
    planted: float | None


class Prediction(OfDevice, frozen=True, kw_only=True, tag="prediction"):
    """The predicted time of an implementation of a case on a described device."""

    case: Case
    row: str
    implementation: str
    device: Json


class Program(Part, frozen=True, kw_only=True):
    """A launch of a compiled kernel: its resources, and its minimum of bytes and FLOPs."""

    name: str
    grid: list[int]
    registers: int  # per thread
    spilled_bytes: int  # per thread
    shared_bytes: int  # per block
    occupancy: float  # fraction of a multiprocessor's warps
    bytes: int
    flops: int


class Compiled(OfDevice, frozen=True, kw_only=True, tag="compiled"):
    """Kernels of the forward and backward pass, compiled for a GPU and not run."""

    shape: str
    precision: str
    capability: int
    programs: list[Program]


class TrainingStage(Part, frozen=True, kw_only=True):
    """A stage's steps; ``source`` says whether ``step_s`` is predicted or measured."""

    column: str
    objective: str
    epochs: int
    batch: int
    steps: int
    end_to_end: bool
    step_s: float
    source: str


class TrainingTime(OfDevice, frozen=True, kw_only=True, tag="training-time"):
    """A row of a table of training times, in ``unit``, on the paper's device and on others."""

    device: Json
    unit: str
    stages: list[TrainingStage]
    on_other_devices: list[Json]


class Scaling(OfDevice, frozen=True, kw_only=True, tag="scaling"):
    """Time and memory by one size, the ``symbol``; lists have an entry for each size."""

    ladder: str
    implementation: str
    symbol: str
    sizes: list[int]
    case: Case
    samples: list[list[float]]
    flops: list[float]
    macs: list[float] | None
    saved_bytes: list[float]
    peak_bytes: list[float]
    predicted_s: list[float]
    shares: list[dict[str, float]]
    ceilings: Json
    why: str
    saved_form: str | None = None


# --- captions and measurements of captioners
class Example(Part, frozen=True, kw_only=True, omit_defaults=True):
    """An image's caption and a reference; optionally its given middle word and the whole beam."""

    image: int
    caption: str
    reference: str
    word: str | None = None
    beam: list[str] | None = None


class Released(Details, frozen=True, kw_only=True, tag="released"):
    """Scores of captions that authors released."""

    predictions: str
    predictions_sha256: str


class OfCaptioner(Details, frozen=True, kw_only=True):
    """Base of measurements of our captioners' captions by beam search."""

    beam_size: int
    max_length: int | None = None
    parameters: int | None = None

    @property
    def slot(self) -> tuple[object, ...]:
        """Different beam searches are different measurements."""
        return self.beam_size, self.max_length


class Scores(OfCaptioner, frozen=True, kw_only=True):
    """Scores of captions: CIDEr-D of each image, 0 to 10 in the split's order, and examples."""

    cider_d: list[float]
    examples: list[Example]


class Attention(Part, frozen=True, kw_only=True):
    """Attention weights of the last layer for a caption, (heads, words, detections)."""

    image: int
    words: list[str]
    weights: list[list[list[float]]]


class Ablation(Scores, frozen=True, kw_only=True, tag="ablation"):
    """A row of the ablation that the main job trains on generated scenes."""

    training_seconds: float
    attention: Attention | None = None


class Evaluation(Scores, frozen=True, kw_only=True, tag="evaluation"):
    """Scores by `captionbench evaluate`: of a run, or of an ensemble of ``members``."""

    epochs: int
    training_seconds: float
    validations: list[Json]
    config: Json = {}
    losses: list[Json] = []
    members: list[Json] = []
    attention: Attention | None = None


class Trained(OfCaptioner, frozen=True, kw_only=True):
    """A captioner trained by an experiment: its sizes and the settings of each stage."""

    configuration: Json
    stages: list[Json]
    form: str | None = None


class Scored(Trained, frozen=True, kw_only=True):
    """A trained captioner's scores, see `Scores`."""

    cider_d: list[float]
    examples: list[Example]


class Captions(Scored, frozen=True, kw_only=True, tag="captions"):
    """A row of a paper's table of scores."""

    validations: list[Json]


class Trial(Details, frozen=True, kw_only=True, tag="trial"):
    """A point of the hyperparameter grid that a row's training is chosen from, on validation."""

    form: str
    change: str
    configuration: Json
    stages: list[Json]
    validations: list[Json]


class CrossEntropy(Part, frozen=True, kw_only=True):
    """The same model before self-critical training."""

    cider_d: list[float]
    validations: list[Json]
    checkpoint: str | None


class Rewards(Captions, frozen=True, kw_only=True, tag="rewards"):
    """Scores after cross-entropy ("XE ...") and after self-critical training ("RL ...")."""

    cross_entropy: CrossEntropy


class ReadOnly(Scored, frozen=True, kw_only=True, tag="read-only"):
    """Scores of a captioner with or without the read-only unit."""

    losses: list[Json]
    validation_losses: dict[str, float]


class Losses(Trained, frozen=True, kw_only=True, tag="losses"):
    """Losses a word, in nats: during training, and on validation for each learning rate tried."""

    losses: list[Json]
    validation_losses: dict[str, float]


class Discrepancy(Trained, frozen=True, kw_only=True, tag="discrepancy"):
    """Distances between training and inference (ARNet 11, 12), and each image's share of them."""

    validations: list[Json]
    shares: dict[str, list[float]]


class States(Trained, frozen=True, kw_only=True, tag="states"):
    """t-SNE of the last hidden states in training and in inference."""

    validations: list[Json]
    perplexity: float
    divergence: float
    points: dict[str, list[tuple[float, float]]]


class Digits(Details, frozen=True, kw_only=True, tag="digits"):
    """Permuted sequential MNIST (ARNet's Table 5)."""

    form: str
    hidden_size: int
    batch_size: int
    learning_rates: list[float]
    reconstruction_weight: float
    options: Json
    epochs: list[int]
    steps: int
    history: list[Json]


class MiddleOut(Scored, frozen=True, kw_only=True, tag="middle-out"):
    """Scores; ``commonest`` is the accuracy of always choosing the most frequent middle word."""

    best: Json
    classifier: Json
    left_out: dict[str, int]
    commonest: float | None = None


class Beam(Part, frozen=True, kw_only=True):
    """All captions of an image's beam, the best first."""

    image: int
    captions: list[str]


class Diversity(Trained, frozen=True, kw_only=True, tag="diversity"):
    """Diversity of a beam's captions (Middle-Out's Table 4): self-BLEU-4 of each image."""

    best: Json
    classifier: Json
    left_out: dict[str, int]
    self_b4: list[float]
    beams: list[Beam]


class Control(Trained, frozen=True, kw_only=True, tag="control"):
    """Whether captions of two images contain the given word (Middle-Out's Table 6)."""

    best: Json
    classifier: Json
    left_out: dict[str, int]
    follows: list[float]
    pairs: list[list[Example]]


class Sequences(Part, frozen=True, kw_only=True):
    """A noisy sequence, the clean one, and a regressor's output."""

    x: list[float]
    y: list[float]
    y_hat: list[float]


class Denoising(Details, frozen=True, kw_only=True, tag="denoising"):
    """A regressor's errors, over seeds (Middle-Out's Table 1)."""

    settings: Json
    per_seed: dict[str, list[float]]
    history: list[Json]
    example: Sequences | None = None


class DenoisingRatio(Details, frozen=True, kw_only=True, tag="denoising-ratio"):
    """The ratio of the errors of two regressors, ``of`` / ``over``."""

    settings: Json
    of: str
    over: str


class Simulation(Details, frozen=True, kw_only=True, tag="simulation"):
    """Simulated rate at which equal models are called different, with measured deviations."""

    spread: dict[str, float]  # of CIDEr-D differences, by source: seeds, images, residual
    draws: int  # simulated differences
    measured: int  # records that the deviations are estimated from


Counts = Equations | Verification | Operations | Parameters | Words | Simulation
Speed = Timing | Counted | Comparison | Prediction | Compiled | TrainingTime | Scaling
Captioning = Released | Ablation | Evaluation | Captions | Trial | Rewards | ReadOnly | Losses
Reconstruction = Discrepancy | States | Digits
FromTheMiddle = MiddleOut | Diversity | Control | Denoising | DenoisingRatio
AnyDetails = Counts | Speed | Captioning | Reconstruction | FromTheMiddle
