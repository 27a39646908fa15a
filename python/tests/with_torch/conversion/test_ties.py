"""Heads that share the embedding: when the tie stays, when it is broken, and under which names tables are stored."""

import pytest
import torch
from transformers import AutoConfig

from checkpoints import build, distance, run
from decoders import DECODERS
from encoders import ENCODERS
from program import load_rms, norms, refusal, succeed
from saving import load, save, set_tensors, tensors

CASES = {case.name: case for case in DECODERS + ENCODERS}
TABLE, HEAD = "transformer.wte.weight", "lm_head.weight"


def files(case, model, folder):
    save(model, case, folder / "source", "f64")
    return folder / "source", folder / "out"


def assert_same(case, source, out):
    expected = run(load(case.model_class, source), case)
    assert distance(run(load(case.model_class, out, case.heads), case), expected) < 1e-12
    assert distance(run(load_rms(case, out), case), expected) < 1e-12


def is_tied(folder):
    return AutoConfig.from_pretrained(folder).tie_word_embeddings


def test_is_broken_by_weights(tmp_path):
    source, out = files(CASES["gpt2"], build(CASES["gpt2"]), tmp_path)
    succeed("convert", source, out, "--entry", "weights")
    before, after = tensors(source), tensors(out)
    assert not is_tied(out)
    assert after[HEAD].equal(before[TABLE])
    assert after[TABLE].mean(1).abs().max() < 1e-15
    assert_same(CASES["gpt2"], source, out)


def test_is_kept_by_an_operation(tmp_path):
    case = CASES["gpt2"]
    source, out = files(case, build(case), tmp_path)
    succeed("convert", source, out, "--keep-tie")
    before, after = tensors(source), tensors(out)
    assert is_tied(out)
    assert HEAD not in after
    assert after[TABLE].equal(before[TABLE])
    assert norms(load_rms(case, out))["centres"] == 1
    assert_same(case, source, out)


def test_keeping_it_by_weights_is_refused(tmp_path):
    source, out = files(CASES["gpt2"], build(CASES["gpt2"]), tmp_path)
    assert refusal("convert", source, out, "--keep-tie", "--entry", "weights").startswith("R04")
    assert not out.exists()


@torch.no_grad()
def uniform_final_norm(model):
    model.transformer.ln_f.weight.fill_(0.75)
    model.transformer.ln_f.bias.zero_()


@torch.no_grad()
def centred_rows(model):
    # Sums that are exact, so that the means are 0 to the bit.
    table = torch.round(model.transformer.wte.weight * 64) / 64
    table[:, -1] -= table.sum(1)
    model.transformer.wte.weight.copy_(table)


@pytest.mark.parametrize("change", [uniform_final_norm, centred_rows], ids=lambda change: change.__name__)
def test_stays_where_it_does_no_harm(change, tmp_path):
    case = CASES["gpt2"]
    model = build(case)
    change(model)
    source, out = files(case, model, tmp_path)
    succeed("convert", source, out, "--entry", "weights", "--keep-tie")
    assert is_tied(out)
    assert HEAD not in tensors(out)
    assert norms(load_rms(case, out))["centres"] == 0
    assert_same(case, source, out)


@torch.no_grad()
def test_a_common_mean_of_the_rows_is_not_enough(tmp_path):
    """It shifts all logits of a token by one number: not the same logits."""
    case = CASES["gpt2"]
    model = build(case)
    centred_rows(model)
    model.transformer.wte.weight += 0.25
    source, out = files(case, model, tmp_path)
    assert refusal("convert", source, out, "--entry", "weights", "--keep-tie").startswith("R04")


def test_stored_copy_of_a_tied_table_becomes_the_head(tmp_path):
    """As Falcon was published: both names are in the files."""
    case = CASES["falcon one norm"]
    source, out = files(case, build(case), tmp_path)

    def add_head(held):
        if "transformer.word_embeddings.weight" in held:
            held[HEAD] = held["transformer.word_embeddings.weight"].clone()

    set_tensors(source, add_head)
    succeed("convert", source, out, "--entry", "weights")
    assert tensors(out)[HEAD].equal(tensors(source)["transformer.word_embeddings.weight"])
    assert_same(case, source, out)


@pytest.mark.parametrize("name", ["mbart", "m2m_100"])
def test_untying_stores_every_alias(name, tmp_path):
    """transformers would fill in those that are missing, without a word."""
    case = CASES[name]
    source, out = files(case, build(case), tmp_path)
    assert [k for k in tensors(source) if "shared" in k or "embed_tokens" in k or "lm_head" in k] == [
        "model.shared.weight"
    ]
    succeed("convert", source, out, "--untie")
    after = tensors(out)
    table = tensors(source)["model.shared.weight"]
    for alias in ("lm_head", "model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        assert after[f"{alias}.weight"].equal(table), alias
    assert not is_tied(out)
    assert_same(case, source, out)


def test_whisper_keeps_its_tie_with_an_operation(tmp_path):
    case = CASES["whisper"]
    source, out = files(case, build(case), tmp_path)
    succeed("convert", source, out, "--keep-tie")
    assert is_tied(out)
    assert norms(load_rms(case, out))["centres"] == 2
    assert_same(case, source, out)
