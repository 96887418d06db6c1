"""Closed forms of FLOPs equal PyTorch's counter, the equations counted, and v2's Table VI."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import papers
from benchmarks.cli import main as cli
from benchmarks.errors import InputError
from benchmarks.perf.flops import closed_forms, table_vi
from benchmarks.perf.flops.closed_forms import Length, components
from benchmarks.verify import strategies
from benchmarks.verify.tolerances import SUMS, assert_close
from tests.support import counting
from tests.support.covers import covers
from tests.support.tolerances import PRINTED_FLOPS
from torch_impl.expansion import DynamicExpansion, StaticExpansion
from torch_impl.layers.kv_cache import init_cache
from torch_impl.models import Captioner, Configuration

few = st.integers(1, 4)


def counted_by_torch(function: Callable[..., object], *arguments: object) -> int:
    """The FLOPs of matrix products, 2 a multiply-accumulate, attention's own ones included."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        function(*arguments)
    return counter.get_total_flops()


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    heads, d_model = draw(strategies.heads())
    static = strategies.groups().map(lambda groups: "static:" + ",".join(map(str, groups)))
    dynamic = few.map("dynamic:{}".format)
    reductions = st.sampled_from(("linear", "norm", "none"))
    return Configuration(
        vocabulary_size=draw(st.integers(3, 20)),
        d_feature=draw(few),
        encoder=draw(st.sampled_from(("attention", "aoa")) | static | dynamic),
        decoder=draw(st.sampled_from(("attention", "aoa")) | dynamic),
        encoder_reduction=draw(reductions),
        decoder_reduction=draw(reductions),
        d_model=d_model,
        d_ff=draw(few),
        num_heads=heads,
        num_encoder_layers=draw(st.integers(1, 2)),
        num_decoder_layers=draw(st.integers(1, 2)),
    )


@given(configurations(), few, strategies.lengths(), strategies.lengths())
def test_a_captioner_costs_what_pytorch_counts(configuration, batch, features, tokens):
    model = Captioner(configuration).eval()
    for layer in model.modules():
        if isinstance(layer, StaticExpansion | DynamicExpansion):
            layer.implementation = "literal"
    image = torch.randn(batch, features, configuration.d_feature)
    words = torch.randint(configuration.vocabulary_size, (batch, tokens))
    parts = components(configuration, Length.of([features]), Length.of([tokens]))
    macs = sum(part.macs for part in parts)
    assert 2 * batch * macs == counted_by_torch(model, image, words)


@given(configurations(), few, few)
def test_a_captioner_has_as_many_parameters_as_its_closed_form(configuration, features, tokens):
    parts = components(configuration, Length.of([features]), Length.of([tokens]))
    model = Captioner(configuration)
    assert sum(part.parameters for part in parts) == sum(p.numel() for p in model.parameters())


@given(configurations(), few, few, few, few, st.sampled_from((torch.float32, torch.bfloat16)))
def test_the_cache_of_a_search_is_as_large_as_its_closed_form(
    configuration, batch, features, beams, tokens, dtype
):
    c = configuration
    model = Captioner(c).to(dtype).eval()
    memory = torch.zeros(batch, features, c.d_model, dtype=dtype)
    layers = model.init_cache(memory, None, beams, tokens)._layers
    mixer, cross = layers[0].layer.mixer, sum(x.nbytes for x in (layers[0].keys, layers[0].values))
    buffers = init_cache(mixer, batch, beams * tokens, tokens)
    kind, _, N_E = c.decoder.partition(":")
    one = closed_forms.kv_cache(
        kind, c.d_model, int(N_E or 0), features, beams * tokens, tokens, dtype.itemsize
    )
    assert batch * one == cross + sum(x.nbytes for x in buffers.values())


@covers(expansionnet_v2=[2, 5, 7, 9])
@given(strategies.lengths(), strategies.widths(), strategies.groups())
def test_a_static_layer_costs_what_pytorch_counts(length, d, groups):
    component = closed_forms.static_expansion(Length.of([length]), d, sum(groups), len(groups), 1)
    layer = StaticExpansion(d, groups, implementation="literal")
    assert 2 * component.macs == counted_by_torch(layer, torch.randn(1, length, d))
    printed = closed_forms.static_literal(Length.of([length]), d, sum(groups))
    assert component.macs == 4 * length * d**2 + printed


@covers(expansionnet_v2=[1, 2, 5, 7])
@given(strategies.lengths(), strategies.widths(), few, st.booleans())
def test_a_dynamic_layer_costs_what_pytorch_counts_masked_or_not(length, d, N_E, causal):
    component = closed_forms.dynamic_expansion(Length.of([length]), d, N_E)
    layer = DynamicExpansion(d, N_E, causal=causal, implementation="literal")
    assert 2 * component.macs == counted_by_torch(layer, torch.randn(1, length, d))
    printed = closed_forms.dynamic_literal(Length.of([length]), d, N_E)
    assert component.macs == 5 * length * d**2 + printed


@covers(expansionnet_v2=[1, 2, 3, 4, 5, 6, 7, 8, 9])
@given(strategies.lengths(4), strategies.widths(4), strategies.groups(3, 3), few)
def test_elementwise_operations_of_expansions_are_those_of_the_printed_equations(L, d, groups, N_E):
    static = closed_forms.static_expansion(Length.of([L]), d, sum(groups), len(groups), 1)
    assert static.elementwise == counting.count(counting.static_expansion, L, d, list(groups))
    dynamic = closed_forms.dynamic_expansion(Length.of([L]), d, N_E)
    assert dynamic.elementwise == counting.count(counting.dynamic_expansion, L, d, N_E)


@given(strategies.heads(), strategies.lengths(4), strategies.lengths(4), st.booleans(), few)
def test_elementwise_operations_of_the_other_parts_are_those_of_their_equations(
    sizes, T, L, gated, width
):
    heads, d = sizes
    part = closed_forms.attention(Length.of([T]), Length.of([L]), T * L, d, heads, gated)
    assert part.elementwise == counting.count(counting.attention, T, L, d, heads, gated)
    X = counting.numbers(T, d)
    part = closed_forms.feed_forward(Length.of([T]), d, width)
    assert part.elementwise == counting.count(
        lambda: counting.linear(counting.relu(counting.linear(X, width)), d)
    )
    part = closed_forms.norms(Length.of([T]), d, count=1, residuals=1)
    assert part.elementwise == counting.count(lambda: counting.layer_norm(X) + X)


@given(configurations(), strategies.lengths(4), strategies.lengths(4))
def test_elementwise_operations_at_both_ends_of_a_captioner(configuration, L, T):
    c = replace(configuration, encoder_reduction="linear", decoder_reduction="linear")
    parts = components(c, Length.of([L]), Length.of([T]))
    by_name = {(part.half, part.name): part.elementwise for part in parts}
    d, V = c.d_model, c.vocabulary_size
    image, words = counting.numbers(L, c.d_feature), counting.numbers(T, d)

    def reduce(length, layers):
        outputs = counting.numbers(length, layers * d)
        return counting.layer_norm(counting.linear(outputs, d) + counting.numbers(length, d))

    ends = {
        ("encoder", "input projection"): lambda: counting.linear(image, d),
        ("encoder", "reduction"): lambda: reduce(L, c.num_encoder_layers),
        ("decoder", "embedding"): lambda: words * 2.0 + counting.numbers(T, d),
        ("decoder", "reduction"): lambda: reduce(T, c.num_decoder_layers),
        ("decoder", "vocabulary"): lambda: counting.log_softmax(counting.linear(words, V)),
    }
    for name, function in ends.items():
        assert by_name[name] == counting.count(function), name


def normalised(x: Tensor) -> Tensor:
    return x / (x.sum(-1, keepdim=True) + 1e-9)


def selected(S: Tensor, B_1: Tensor, B_2: Tensor) -> Tensor:
    return S.sigmoid() * B_1 + (1 - S.sigmoid()) * B_2


@given(strategies.lengths(), strategies.widths(), strategies.groups(), strategies.generators())
def test_the_static_rewriting_is_exact_and_costs_its_closed_form(L, d, groups, generator):
    layer = StaticExpansion(d, groups, implementation="literal").double()
    x = torch.from_numpy(generator.standard_normal((L, d)))
    V_1, V_2, S = layer.value_1(x), layer.value_2(x), layer.selector(x)
    E_B = layer.bias_vectors

    def fold() -> Tensor:
        return layer.query_vectors @ torch.column_stack([layer.key.weight, layer.key.bias])

    folded = fold()

    def rewritten() -> Tensor:
        M = (folded[:, :-1] @ x.T + folded[:, -1:]) / d**0.5
        streams = []
        for signed, V in ((M, V_1), (-M, V_2)):
            R_fw = normalised(signed.relu())
            split = signed.relu().T.split(list(groups), dim=1)
            R_bw = torch.cat([normalised(part) for part in split], dim=1) / len(groups)
            streams.append((R_bw @ R_fw) @ V + R_bw @ E_B)
        return selected(S, *streams)

    N, length = sum(groups), Length.of([L])
    assert_close(rewritten().detach(), layer(x[None])[0].detach())
    reassociated = closed_forms.static_reassociated(length, d, N)
    assert counted_by_torch(rewritten) == 2 * reassociated
    assert counted_by_torch(fold) == 2 * closed_forms.folded_keys(d, N, batch=1)


@given(strategies.lengths(), strategies.widths(), few, strategies.generators())
def test_the_dynamic_rewriting_is_exact_and_costs_its_closed_form(L, d, N_E, generator):
    layer = DynamicExpansion(d, N_E, causal=True, implementation="literal").double()
    x = torch.from_numpy(generator.standard_normal((L, d)))
    C, K, S = layer.condition(x), layer.key(x), layer.selector(x)
    V_1, V_2 = layer.value_1(x), layer.value_2(x)
    seen = torch.ones(L, L).tril().bool()[:, None]

    def rewritten() -> Tensor:
        A, P = C @ K.T, layer.query_vectors @ K.T
        M = (A[:, None] + P[None]) / d**0.5
        streams = []
        for signed, V in ((M, V_1), (-M, V_2)):
            Z = signed.relu() * seen
            R_fw = normalised(Z).reshape(L * N_E, L)
            Z_bw = (signed.relu() * seen.transpose(0, 2)).permute(2, 0, 1).reshape(L, L * N_E)
            R_bw = normalised(Z_bw)
            by_token = R_bw.reshape(L, L, N_E)
            bias = by_token.sum(2) @ C + by_token.sum(1) @ layer.bias_vectors
            streams.append((R_bw @ R_fw) @ V + bias)
        return selected(S, *streams)

    split = closed_forms.dynamic_split(Length.of([L]), d, N_E)
    assert counted_by_torch(rewritten) == 2 * split
    assert_close(rewritten().detach(), layer(x[None])[0].detach())


large = st.integers(1, 3000)


@given(large, large, large)
def test_reassociating_pays_exactly_where_the_inequality_says(L, d, N):
    length = Length.of([L])
    cheaper = closed_forms.static_reassociated(length, d, N) < closed_forms.static_literal(
        length, d, N
    )
    assert cheaper == (Fraction(1, L) > Fraction(1, N) + Fraction(1, d))


@given(large, large, large, large)
def test_folding_the_keys_pays_exactly_where_the_inequality_says(L, d, N, batch):
    length = Length.of([L])
    saved = closed_forms.projected_keys(length, d) - closed_forms.folded_keys(d, N, batch)
    margin = Fraction(N * (d + 1), L * d)
    # division in floating point decides nothing at equality
    assert saved > 0 if batch > margin else saved <= 1e-9 * L * d**2


@given(configurations(), st.integers(1, 40), st.integers(1, 40), st.integers(1, 100))
def test_factored_never_costs_more_than_printed(configuration, features, tokens, batch):
    for part in components(configuration, Length.of([features]), Length.of([tokens]), batch):
        assert part.factored <= part.macs
        assert 0 <= part.macs <= part.flops == 2 * part.macs + part.elementwise


SIZES = ("vocabulary_size", "d_feature", "d_ff", "num_encoder_layers", "num_decoder_layers")


@given(configurations(), st.integers(1, 40), st.integers(1, 40))
def test_every_size_costs(configuration, features, tokens):
    def flops(model: Configuration, L: int = features, T: int = tokens) -> float:
        return sum(p.flops for p in components(model, Length.of([L]), Length.of([T])))

    before = flops(configuration)
    assert flops(configuration, L=features + 1) > before < flops(configuration, T=tokens + 1)
    wider = replace(configuration, d_model=configuration.d_model + configuration.num_heads)
    assert flops(wider) > before
    gated_everywhere = {configuration.encoder, configuration.decoder} == {"aoa"}
    for name in SIZES:
        larger = replace(configuration, **{name: getattr(configuration, name) + 1})
        if name == "d_ff" and gated_everywhere:
            assert flops(larger) == before
        else:
            assert flops(larger) > before, name


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), strategies.lengths(), few)
def test_the_three_means_give_the_mean_cost_of_ragged_captions(lengths, features, N_E):
    model = table_vi.configuration("static:3,4", f"dynamic:{N_E}", d_model=16, d_ff=8)

    def flops(captions: Length) -> float:
        return sum(p.flops for p in components(model, Length.of([features]), captions))

    alone = sum(flops(Length.of([n])) for n in lengths) / len(lengths)
    assert flops(Length.of(lengths)) == pytest.approx(alone, rel=SUMS)
    split = sum(closed_forms.dynamic_split(Length.of([n]), 16, N_E) for n in lengths)
    together = closed_forms.dynamic_split(Length.of(lengths), 16, N_E)
    assert together == pytest.approx(split / len(lengths), rel=SUMS)


def test_table_vi_is_regenerated_on_all_rows_within_a_thousandth():
    lines = table_vi.table_vi(table_vi.RECORDED)
    assert [line.row for line in lines] == [
        row.name for row in papers.load("expansionnet_v2").table("VI").rows
    ]
    assert len(lines) == 12
    for line in lines:
        assert abs(line.difference_percent) < 100 * PRINTED_FLOPS, line


def test_the_paper_counts_everything_but_the_input_projection_and_elementwise_operations():
    parts, total = table_vi.count(table_vi.configuration(), table_vi.RECORDED)
    left_out = [part.name for part in parts if not part.in_paper]
    assert left_out == ["input projection"]
    projection = table_vi.FEATURES * table_vi.D_FEATURE * 512
    assert total.paper == pytest.approx(total.macs - table_vi.IMAGES * projection, rel=SUMS)


WORDS = {
    "A man, on a T-shirt  rides.": 7,
    "black & white; that's it!": 5,
    "AT&T ( his/her ) - 8th . \n": 3,
    "...": 0,
}


def test_captions_are_as_long_as_their_words_with_start_and_end():
    for text, words in WORDS.items():
        assert table_vi.caption_length([text]) == Length.of([words + 2]), text
    assert table_vi.caption_length(WORDS) == Length.of(n + 2 for n in WORDS.values())


@pytest.fixture
def data(tmp_path):
    path = tmp_path / table_vi.CAPTIONS_FILE
    path.parent.mkdir()
    images = [
        {"cocoid": i, "split": "val", "sentences": [{"raw": text}]} for i, text in enumerate(WORDS)
    ]
    path.write_text(json.dumps({"images": images}))
    return tmp_path


def test_caption_lengths_come_from_the_data_folder_where_it_has_them(data, tmp_path_factory):
    assert table_vi.captions(data).length == table_vi.caption_length(WORDS)
    assert table_vi.captions(data).status == "same data"
    for without in (None, tmp_path_factory.mktemp("empty")):
        assert table_vi.captions(without).length == table_vi.RECORDED
        assert table_vi.captions(without).status == "recorded means"
    with pytest.raises(InputError, match="no such folder"):
        table_vi.captions(data / "nowhere")
    (data / table_vi.CAPTIONS_FILE).write_text('{"images": [')
    with pytest.raises(InputError, match="not valid JSON"):
        table_vi.captions(data)


def test_records_of_table_vi_are_valid_and_say_where_lengths_come_from(data):
    for folder, status in ((None, "recorded means"), (data, "same data")):
        made = table_vi.make_records("key", folder)
        assert len(made) == 12
        for record in made:
            assert record.status == status
            assert bool(record.data.fingerprint) == (folder is not None)


def test_the_command_prints_table_vi_and_the_parts_of_a_model(capsys):
    assert cli.main(["flops"]) == 0
    out = capsys.readouterr().out
    assert "15.21  15.2089" in out and "block static expansion" in out
    assert cli.main(["flops", "--encoder", "aoa", "--caption-length", "9"]) == 0
    out = capsys.readouterr().out
    assert "Table VI" not in out and "attention on attention" in out


def test_the_command_prints_json_that_adds_up(capsys):
    options = ["--d-model", "64", "--d-ff", "32", "--num-heads", "4", "--length", "7"]
    options += ["--num-encoder-layers", "2", "--num-decoder-layers", "2", "--num-images", "3"]
    options += ["--vocabulary-size", "50", "--encoder", "static:4,4", "--json"]
    assert cli.main(["flops", *options]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["table"] == []
    assert content["configuration"]["num_decoder_layers"] == 2
    for form in ("macs", "flops", "factored"):
        total = 3 * sum(part[form] for part in content["components"])
        assert content["total"][form] == pytest.approx(total)
    for part in content["components"]:
        assert part["macs"] == pytest.approx(sum(e["macs"] for e in part["equations"]))


BAD = [
    (["--num-heads", "7"], "not divisible by --num-heads"),
    (["--num-heads", "0"], "--num-heads must be at least 1"),
    (["--encoder", "static:"], "static"),
    (["--encoder", "static:8,0"], "at least 1"),
    (["--decoder", "static:8"], "decoder|later words"),
    (["--decoder", "dynamic:0"], "at least 1"),
    (["--length", "0"], "--length"),
    (["--caption-length", "-1"], "--caption-length"),
    (["--caption-length", "9" * 400], "--caption-length"),
    (["--num-images", "0"], "--num-images: 0, expected at least 1"),
    (["--batch-size", "0"], "--batch-size: 0, expected at least 1"),
    (["--num-encoder-layers", "0"], "--num-encoder-layers must be at least 1"),
    (["--vocabulary-size", "1"], "vocabulary"),
    (["--d-feature", "0"], "--d-feature must be at least 1"),
    (["--vocabulary-size", "9" * 400], "too large"),
    (["--plot", "curve.xyz"], "curve.xyz"),
    (["--plot", "none/here/a.svg"], "none/here: no such folder"),
    (["--encoder", "static:8,1000000000"], "--encoder static:8,1000000000: expected at most"),
    (["--decoder", "dynamic:" + "9" * 400], "--decoder dynamic:99"),
    (["--data", "no/such/folder"], "no/such/folder"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_values_are_one_line_and_exit_code_2(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["flops", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert any(word in captured.err for word in message.split("|")), captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "magic"), [("c.svg", b"<?xml"), ("c.png", b"\x89PNG")])
def test_the_plot_is_written_whole_over_what_was_there(name, magic, tmp_path, capsys):
    path = tmp_path / name
    path.write_text("old")
    assert cli.main(["flops", "--plot", str(path)]) == 0
    drawn = path.read_bytes()
    assert drawn.startswith(magic)
    assert list(tmp_path.iterdir()) == [path]
    assert cli.main(["flops", "--plot", str(path)]) == 0
    assert path.read_bytes() == drawn or name.endswith("pdf")  # which says when it was made


def test_a_sweep_grows_with_the_coefficient_and_factored_lies_below():
    printed = table_vi.sweep(table_vi.RECORDED)
    factored = table_vi.sweep(table_vi.RECORDED, form="paper_factored")
    for name, (coefficients, values) in printed.items():
        assert coefficients == sorted(coefficients)
        assert values == sorted(values) and values[0] < values[-1]
        assert all(f <= v for f, v in zip(factored[name][1], values, strict=True))
