"""Decoders of text: next-token losses, some targets ignored."""

from __future__ import annotations

import transformers as hf

from models.architectures.architecture import Architecture
from models.assembly import Field, Fields

VOCABULARY = 95


def _tokens(sequence: int, padded: bool = False) -> Fields:
    fields = {
        "input_ids": Field((sequence,), "index", VOCABULARY),
        "labels": Field((sequence,), "masked_index", VOCABULARY),
    }
    return fields | ({"attention_mask": Field((sequence,), "prefix_ones")} if padded else {})


_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "use_cache": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
_GROUPED = {**_SIZES, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8}


def _gpt2() -> hf.GPT2LMHeadModel:
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=24,
            n_layer=2,
            n_head=3,
            n_positions=32,
            use_cache=False,
            scale_attn_by_inverse_layer_idx=True,
            bos_token_id=0,
            eos_token_id=1,
        )
    )


def _gpt_neo() -> hf.GPTNeoForCausalLM:
    return hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(
            vocab_size=VOCABULARY,
            hidden_size=24,
            num_layers=2,
            num_heads=3,
            attention_types=[[["global", "local"], 1]],
            window_size=4,
            max_position_embeddings=32,
            embed_dropout=0.1,
            attention_dropout=0.1,
            resid_dropout=0.1,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=1,
        )
    )


def _gpt_neox() -> hf.GPTNeoXForCausalLM:
    return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**_SIZES, rotary_pct=0.5, attention_dropout=0.1, hidden_dropout=0.1))


def _opt() -> hf.OPTForCausalLM:
    sizes = {name: size for name, size in _SIZES.items() if name != "intermediate_size"}
    return hf.OPTForCausalLM(
        hf.OPTConfig(**sizes, ffn_dim=40, dropout=0.1, attention_dropout=0.1, word_embed_proj_dim=16)
    )


def _bloom() -> hf.BloomForCausalLM:
    return hf.BloomForCausalLM(
        hf.BloomConfig(
            vocab_size=VOCABULARY,
            hidden_size=24,
            n_layer=2,
            n_head=3,
            hidden_dropout=0.1,
            attention_dropout=0.1,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=1,
        )
    )


def _mistral() -> hf.MistralForCausalLM:
    return hf.MistralForCausalLM(hf.MistralConfig(**_GROUPED, sliding_window=5, attention_dropout=0.1))


def _gemma2() -> hf.Gemma2ForCausalLM:
    return hf.Gemma2ForCausalLM(
        hf.Gemma2Config(
            **_GROUPED,
            sliding_window=4,
            attention_dropout=0.1,
            attn_logit_softcapping=5.0,
            final_logit_softcapping=3.0,
            query_pre_attn_scalar=8,
            attn_implementation="eager",
        )
    )


def _qwen3() -> hf.Qwen3ForCausalLM:
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**_GROUPED))


def _phi() -> hf.PhiForCausalLM:
    return hf.PhiForCausalLM(
        hf.PhiConfig(**_SIZES, partial_rotary_factor=0.5, resid_pdrop=0.1, embd_pdrop=0.1, attention_dropout=0.1)
    )


def _mixtral() -> hf.MixtralForCausalLM:
    return hf.MixtralForCausalLM(
        hf.MixtralConfig(
            **_GROUPED,
            num_local_experts=5,
            num_experts_per_tok=2,
            output_router_logits=True,
            attention_dropout=0.1,
            experts_implementation="batched_mm",
        )
    )


def _mamba() -> hf.MambaForCausalLM:
    return hf.MambaForCausalLM(
        hf.MambaConfig(
            vocab_size=VOCABULARY,
            hidden_size=24,
            state_size=6,
            num_hidden_layers=2,
            conv_kernel=3,
            time_step_rank=4,
            use_cache=False,
        )
    )


def _mamba2() -> hf.Mamba2ForCausalLM:
    return hf.Mamba2ForCausalLM(
        hf.Mamba2Config(
            vocab_size=VOCABULARY,
            hidden_size=24,
            state_size=6,
            num_hidden_layers=2,
            num_heads=6,
            head_dim=8,
            n_groups=2,
            chunk_size=4,
            conv_kernel=3,
            use_cache=False,
        )
    )


def _rwkv() -> hf.RwkvForCausalLM:
    return hf.RwkvForCausalLM(
        hf.RwkvConfig(
            vocab_size=VOCABULARY,
            hidden_size=24,
            num_hidden_layers=2,
            attention_hidden_size=24,
            intermediate_size=40,
            use_cache=False,
        )
    )


ARCHITECTURES = {
    "bloom": Architecture(_bloom, _tokens(10, padded=True), batch=3),
    "gemma2": Architecture(_gemma2, _tokens(11), batch=3),
    "gpt2": Architecture(_gpt2, _tokens(12), batch=5, optimizer_options={"weight_decay": 0.1}),
    "gpt_neo": Architecture(_gpt_neo, _tokens(11), batch=3, optimizer="momentum", learning_rate=1e-2),
    "gpt_neox": Architecture(_gpt_neox, _tokens(13, padded=True), batch=3, optimizer="adam"),
    "mamba": Architecture(_mamba, _tokens(7), batch=3),
    "mamba2": Architecture(_mamba2, _tokens(10), batch=3, learning_rate=3e-4),
    "mistral": Architecture(_mistral, _tokens(13), batch=5),
    "mixtral": Architecture(_mixtral, _tokens(7), batch=3),
    "opt": Architecture(_opt, _tokens(11, padded=True), batch=3, optimizer="sgd", learning_rate=1e-2),
    "phi": Architecture(_phi, _tokens(12), batch=3, optimizer="adam"),
    "qwen3": Architecture(_qwen3, _tokens(14, padded=True), batch=3, optimizer_options={"weight_decay": 0.1}),
    "rwkv": Architecture(_rwkv, _tokens(6), batch=3),
}
