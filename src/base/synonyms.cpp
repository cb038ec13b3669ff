// The one table of words that people bring from other programs. A row counts where one of its names
// is known: "fp8" is a recipe, a format or a file's dtype, by what was asked for.
#include "base/nearest.h"

namespace octet {
namespace {

constexpr Synonym kSynonyms[] = {
    // Commands.
    {"finetune fine_tune tune sft lora qlora", "train", "train --model DIR --data FILE"},
    {"resume continue", "train", "train CONFIG --resume"},
    {"pretrain fit", "train"},
    {"merge merge_lora fuse export", "convert"},
    {"quantize quantise quant quantization", "ptq"},
    {"infer inference predict sample complete talk repl", "generate"},
    {"server api host", "serve"},
    {"evaluate evaluation lm_eval score ppl perplexity", "eval"},
    {"estimate memory vram dry_run dryrun", "plan"},
    {"info show summary stats", "inspect"},
    {"embedding embeddings encode", "embed"},
    {"dashboard plot plots visualize", "report"},
    {"list ls models configs presets", "recipes"},
    {"check selftest env diagnose", "doctor"},
    {"version", "--version"},
    // The optimizer.
    {"lr learning_rate base_lr peak_lr max_lr", "optim.lr --lr"},
    {"min_lr lr_min eta_min", "optim.final_lr"},
    {"optim optimizer optim.name optim.type optimizer_type opt", "optim.kind"},
    {"scheduler lr_scheduler lr_scheduler_type scheduler_type lr_schedule lr_decay",
     "optim.schedule"},
    {"warmup_steps num_warmup_steps lr_warmup_steps warmup_iters", "optim.warmup"},
    {"warmup_ratio warmup_fraction", "optim.warmup_share"},
    {"max_grad_norm grad_clip grad_norm gradient_clip gradient_clipping gradient_clip_val "
     "clip_grad "
     "clip_grad_norm clip_norm",
     "optim.clip"},
    {"adam_epsilon epsilon", "optim.eps"},
    {"beta1 beta2 adam_beta1 adam_beta2 adam_betas", "optim.betas"},
    {"wd decay", "optim.weight_decay"},
    // The run.
    {"batch_size bs bsz micro_batch micro_batch_size train_batch_size per_device_train_batch_size "
     "per_device_batch_size",
     "train.batch --batch"},
    {"eval_batch_size per_device_eval_batch_size global_batch_size", ""},
    {"gradient_accumulation_steps gradient_accumulation grad_accumulation grad_accum grad_acc "
     "accum "
     "accumulation_steps accumulate_grad_batches",
     "train.accumulate"},
    {"num_epochs num_train_epochs max_epochs n_epochs epoch", "train.epochs --epochs"},
    {"max_steps num_steps n_steps total_steps num_train_steps max_iters train_iters iters "
     "iterations",
     "--steps train.steps"},
    {"eval_steps eval_interval eval_strategy evaluation_strategy evaluation_steps eval_freq "
     "val_every val_interval",
     "train.eval_every"},
    {"save_steps save_interval save_strategy checkpoint_every checkpoint_interval ckpt_every",
     "train.save_every"},
    {"logging_steps log_steps log_interval log_freq", "train.log_every"},
    {"save_total_limit keep_last", "train.keep"},
    {"load_best_model_at_end save_best", "train.keep_best"},
    {"early_stopping early_stopping_patience early_stop", "train.patience"},
    {"gradient_checkpointing gradient_checkpoint grad_checkpoint activation_checkpointing remat",
     "train.recompute"},
    {"max_memory memory vram gpu_memory device_mem", "--device-memory train.memory_budget"},
    {"random_seed rng_seed", "--seed train.seed"},
    {"output_dir out_dir outdir output save_dir save_path o", "--out out"},
    {"precision dtype torch_dtype compute_dtype mixed_precision bf16 fp16 fp8", "--recipe recipe"},
    {"world_size nproc nproc_per_node num_gpus n_gpus gpus devices num_processes dp "
     "data_parallel_size",
     "--ranks parallel.ranks"},
    {"pp tp tensor pipeline tensor_parallel tensor_parallel_size pipeline_parallel", ""},
    {"compile torch_compile", ""},
    {"logging_dir tensorboard_dir", "train.tensorboard"},
    {"label_smoothing_factor", "train.label_smoothing"},
    {"group_by_length", "data.buckets"},
    {"zero zero_stage fsdp sharding", "parallel.shard"},
    {"resume_from resume_from_checkpoint", "--resume"},
    {"force overwrite_output_dir", "--overwrite"},
    {"wandb use_wandb wandb_project report_to mlflow comet", ""},
    // Adapters.
    {"lora.r lora_r lora_rank lora_dim lora", "lora.rank --lora-rank"},
    {"lora_alpha", "lora.alpha"},
    {"lora_dropout", "lora.dropout"},
    {"target_modules lora_target_modules lora_targets lora.modules", "lora.targets"},
    {"modules_to_save lora_modules_to_save", "lora.save"},
    {"use_dora use_rslora dora rslora", "lora.kind"},
    {"lora_modules lora_path lora_adapter adapter_path peft", "--adapter lora.adapter"},
    {"load_in_8bit", "lora.base"},
    {"model.dropout train.dropout optim.dropout attention_dropout hidden_dropout load_in_4bit", ""},
    // The model.
    {"max_seq_len max_seq_length seq_len seq_length sequence_length sequence_len max_length "
     "block_size context_length context_size ctx ctx_size n_ctx cutoff_len max_model_len "
     "max_position_embeddings",
     "model.seq --seq --context"},
    {"hidden_size hidden_dim d_model n_embd n_embed embed_dim dim", "model.hidden"},
    {"num_hidden_layers num_layers n_layer n_layers depth", "model.layers"},
    {"num_attention_heads num_heads n_head n_heads", "model.heads"},
    {"num_key_value_heads num_kv_heads n_kv_heads n_kv_head num_query_groups", "model.kv_heads"},
    {"intermediate_size ffn_dim ffn_hidden_size d_ff mlp_dim n_inner", "model.ffn"},
    {"vocab_size n_vocab", "model.vocab"},
    {"tie_word_embeddings tie_embeddings tied_embeddings weight_tying", "model.tied"},
    {"rms_norm_eps layer_norm_eps layer_norm_epsilon", "model.norm_eps"},
    {"model_type arch architecture model.type model.name", "model.kind"},
    {"num_labels num_classes n_classes", "model.classes"},
    {"model_name model_name_or_path base_model pretrained init_from m", "--model model.path"},
    // The data.
    {"data dataset datasets dataset_name dataset_path train_file train_data data.path data.file "
     "input input_file",
     "--data data.train"},
    {"val_data val_file eval_data eval_file validation validation_file data.eval data.valid",
     "data.val"},
    {"val_split val_size val_set_size test_size validation_split", "data.val_fraction"},
    {"packing packed sample_packing", "data.pack"},
    {"chat_template", "--template data.chat.template"},
    {"parallel", "parallel.ranks"},
    // Other flags.
    {"max_new_tokens max_completion_tokens n_predict num_predict n", "--max-tokens max_tokens"},
    {"min_tokens min_new_tokens", ""},
    {"temp", "--temperature temperature"},
    {"repeat_penalty rep_penalty", "--repetition-penalty repetition_penalty"},
    {"p", "--prompt"},
    {"c", "--context"},
    {"b max_num_seqs max_batch_size", "--batch"},
    {"outtype", "--dtype"},
    {"outfile output_file", "--out"},
    {"num_fewshot fewshot few_shot n_shot", "--shots"},
    {"calibration calibration_data calib_data", "--calib"},
    {"qtype quant_type quantization", "--format"},
    {"num_threads n_threads nthreads workers num_workers t", "--threads"},
    {"system_prompt", "--system"},
    {"stop_words stop_sequences", "--stop"},
    {"prompt_file", "--prompts"},
    {"api_key", "--token"},
    {"served_model_name alias", "--name"},
    // Values.
    {"gpu cuda:0 cuda0 nvidia", "cuda --device"},
    {"fp8 float8 f8 8bit", "fp8_linear e4m3 fp8-block"},
    {"fp8_e4m3 float8_e4m3fn e4m3fn", "e4m3 fp8_linear"},
    {"fp8_e5m2 float8_e5m2 e5m2fn", "e5m2"},
    {"tensorwise per_tensor delayedscaling float8currentscaling", "fp8_linear"},
    {"rowwise per_row", "fp8_row"},
    {"float8blockscaling", "fp8_block"},
    {"mxfp8blockscaling mx", "mxfp8"},
    {"hifloat8", "hif8"},
    {"deepseek deepseek_v3 blockwise", "fp8_block"},
    {"bfloat16", "bf16"},
    {"float32 f32 fp32 float single", "fp32 f32"},
    {"float16 f16 fp16 half", "fp16 f16"},
    {"float16 f16 fp16 half float64 f64 fp64 double tf32 bf8", ""},
    {"int8 int4 uint8 uint4 fp4 fp6 nf4 mxfp4 nvfp4 4bit 3bit q4_0 q8_0 q4_k_m awq w8a8 w4a16", ""},
    {"adam adam8bit adamw_torch adamw_torch_fused adamw_8bit adamw8bit adamw_bnb_8bit "
     "paged_adamw_8bit",
     "adamw"},
    {"cosine_with_restarts cosine_annealing cosine_with_min_lr", "cosine"},
    {"linear_with_warmup", "linear"},
    {"silu", "swish"},
    {"warmup_stable_decay", "wsd"},
    {"constant_with_warmup", "constant"},
    {"smollm smollm2 tinyllama", "llama"},
    {"qwen2.5 qwen2_5", "qwen2"},
    {"pythia gptneox", "gpt_neox"},
    {"mixtral qwen2_moe qwen3_moe qwen2_vl olmoe gptj gpt_j gpt_oss gemma gemma2 gemma3 phi phi3",
     ""},
    {"classification sequence_classification", "classes"},
    {"regression", "value"},
    {"mlm", "masked masked_token"},
    {"clm causal_lm lm", "text next_token"},
    {"qa question_answering", "span"},
    {"native", "auto"},
    // Tasks.
    {"wikitext wikitext2 wikitext103 ppl", "perplexity"},
    {"obqa openbook", "openbookqa"},
    {"commonsense_qa commonsenseqa", "csqa"},
    {"social_iqa siqa", "socialiqa"},
    {"cola sst2 mnli qnli mrpc rte qqp stsb wnli glue", ""},
};

}  // namespace

std::span<const Synonym> synonyms() {
  return kSynonyms;
}

}  // namespace octet
