// Keys of config.json that several models share. A key is used, neutral (refused with any other
// value), or harmless: about training, generation and software, and passed over.
#pragma once

#include "nn/fields.h"

namespace octet {

// Decoders of Llama's kin. The angles' base and their scaling stand together in newer files.
inline constexpr HfKey kRotaryKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "hidden_size"},
    {.field = "ffn", .key = "intermediate_size"},
    {.field = "layers", .key = "num_hidden_layers"},
    {.field = "heads", .key = "num_attention_heads"},
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 0},
    {.field = "head_dim", .key = "head_dim", .absent = 0},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 2048},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 0},
    {.field = "rope_theta", .key = "rope_theta", .newer = "rope/rope_theta", .absent = 10000},
    {.field = "rope_scaling.type", .key = "rope/rope_type", .older = "rope/type", .absent = 0},
    {.field = "rope_scaling.factor", .key = "rope/factor"},
    {.field = "rope_scaling.low_freq_factor", .key = "rope/low_freq_factor", .absent = 1},
    {.field = "rope_scaling.high_freq_factor", .key = "rope/high_freq_factor", .absent = 4},
    {.field = "rope_scaling.original_max_position",
     .key = "rope/original_max_position_embeddings",
     .newer = "original_max_position_embeddings",
     .absent = 0},
    {.field = "rope_scaling.beta_fast", .key = "rope/beta_fast", .absent = 32},
    {.field = "rope_scaling.beta_slow", .key = "rope/beta_slow", .absent = 1},
    {.field = "rope_scaling.truncate", .key = "rope/truncate", .absent = 1},
    {.field = "rope_scaling.mscale", .key = "rope/mscale", .absent = 0, .zero_is_null = true},
    {.field = "rope_scaling.mscale_all_dim",
     .key = "rope/mscale_all_dim",
     .absent = 0,
     .zero_is_null = true},
    {.field = "rope_scaling.attention_factor", .key = "rope/attention_factor", .absent = 0},
    {.field = "rope_scaling.short_factor", .key = "rope/short_factor"},
    {.field = "rope_scaling.long_factor", .key = "rope/long_factor"},
};

inline constexpr HfKey kRmsEps = {.field = "norm_eps", .key = "rms_norm_eps", .absent = 1e-6};
inline constexpr HfKey kAttentionBias = {
    .field = "attention_bias", .key = "attention_bias", .absent = 0};
inline constexpr HfKey kMlpBias = {.field = "mlp_bias", .key = "mlp_bias", .absent = 0};

inline constexpr HfKey kHiddenAct = {
    .field = "mlp_act", .key = "hidden_act", .absent = static_cast<int>(MlpAct::silu)};
// "sliding_attention" or "full_attention" of each layer, which its reader and its writer know.
inline constexpr HfKey kLayerTypes = {.field = "window_layers", .key = "layer_types", .absent = 0};
inline constexpr HfKey kRopeShare = {.field = "rope_share",
                                     .key = "partial_rotary_factor",
                                     .newer = "rope/partial_rotary_factor",
                                     .absent = 1};

// Neutral keys of every model that has no such field.
inline constexpr HfNeutral kCommonNeutrals[] = {
    {.key = "attention_bias", .value = "false"},
    {.key = "mlp_bias", .value = "false"},
    {.key = "clip_qkv", .value = "null"},
    {.key = "sliding_window", .value = "null"},
    {.key = "use_sliding_window", .value = "false"},
    {.key = "no_rope_layer_interval", .value = "null"},
    {.key = "partial_rotary_factor", .value = "1.0"},
    {.key = "rope/partial_rotary_factor", .value = "1.0"},
    {.key = "is_encoder_decoder", .value = "false"},
    {.key = "add_cross_attention", .value = "false"},
    {.key = "cross_attention_hidden_size", .value = "null"},
    {.key = "tie_encoder_decoder", .value = "false"},
    {.key = "pruned_heads", .value = "{}"},
    {.key = "alibi", .value = "false"},
    {.key = "use_bidirectional_attention", .value = "false", .also = "null"},
    {.key = "attn_logit_softcapping", .value = "null"},
    {.key = "final_logit_softcapping", .value = "null"},
};

// Read by other readers, or with the head.
inline constexpr std::string_view kReadElsewhere[] = {
    "architectures",       "id2label", "label2id", "model_type", "num_labels", "problem_type",
    "quantization_config",
};

// Passed over. A row of docs/results/neutral_keys.csv proves it for each model that does not read
// the key.
inline constexpr std::string_view kHarmlessKeys[] = {
    // of every file
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "_sliding_window_pattern",  // layer_types says it
    "attn_implementation",
    "dtype",
    "encoder_stride",
    "finetuning_task",
    "is_decoder",  // of decoders
    "name_or_path",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pooler_act",
    "pooler_output_size",
    "prefix",
    "return_dict",
    "return_dict_in_generate",
    "task_specific_params",
    "tf_legacy_loss",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
    // of backbones
    "out_features",
    "out_indices",
    "stage_names",
    // of the tokenizer
    "bos_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "_pad_token_id",  // of idefics3, as transformers saves it
    "sep_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    // of training: initialization, and dropout, of which Octet's training has none
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "classifier_dropout",
    "classifier_dropout_prob",
    "embd_pdrop",
    "embedding_dropout",
    "gradient_checkpointing",
    "hidden_dropout",
    "hidden_dropout_prob",
    "initializer_range",
    "neftune_noise_alpha",
    "resid_pdrop",
    "residual_dropout",
    "activation_dropout",
    "decoder_layerdrop",
    "dropout",
    "dropout_rate",
    "encoder_layerdrop",
    "init_std",
    "initializer_factor",
    "qa_dropout",
    "seq_classif_dropout",
    "tie_weights_",
    "pretraining_tp",
    // of generation
    "bad_words_ids",
    "cache_implementation",
    "chunk_size_feed_forward",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "remove_invalid_values",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    // of other programs' kernels and parallelism
    "reorder_and_upcast_attn",
    "tp_plan",
    "use_flash_attn",
    // of classifiers on top, and of segmentation
    "semantic_loss_ignore_index",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
};

}  // namespace octet
