// Losses of two answers to one prompt, of which row 2i was preferred to row 2i + 1. With
//   nll   the sum over a row's labels, n their number, a = nll / n
//   gain  nll_ref - nll, where nll_ref is of the reference model: the data bring it
//   l(x)  (1 - e) log(1 + exp(-x)) + e log(1 + exp(x)), e = LossOptions::smoothing
// and _c, _r of the chosen row and the rejected one
//   dpo    l(beta (gain_c - gain_r))                        Rafailov et al. 2023, equation 7
//   ipo    (gain_c / n_c - gain_r / n_r - 1 / (2 beta))^2   Azar et al. 2023, equation 17, by token
//   simpo  l(beta (a_r - a_c) - gamma)                      Meng et al. 2024, equation 6
//   orpo   a_c + beta log(1 + exp(-o))                      Hong et al. 2024, equation 6
//          o = log odds_c - log odds_r, odds = exp(-a) / (1 - exp(-a))
// IPO's gains are means over tokens, as its authors' own code and TRL have them. Rewards are beta
// gain of dpo and ipo, -beta a of the others, which have no reference; the margin is their
// difference. The metrics chosen_nll and rejected_nll are sums over a row.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"

namespace octet {
namespace {

struct Answers {
  Pairs nll, n, mean;
};

// In f32, [pairs].
Answers answers_of(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const Shape rows = {blocks.size().batch, blocks.size().seq};
  const ValueId labels = blocks.input("labels");
  const ValueId of_tokens = blocks.cross_entropy(call.output, labels, call.inv_n).metrics[0].value;
  const ValueId numbers = blocks.in_f32(labels);
  const ValueId counts = as_numbers(b, b.less(b.fill_like(numbers, -0.5), numbers));
  const ValueId nll = b.reduce_sum(b.reshape(of_tokens, rows), {1});
  const ValueId n = b.reduce_sum(b.reshape(counts, rows), {1});
  // A row that only fills a batch up has no label.
  const ValueId mean = b.div(nll, b.maximum(n, b.fill_like(n, 1)));
  return {pairs_of(b, nll), pairs_of(b, n), pairs_of(b, mean)};
}

// l(x).
ValueId logistic_loss(Builder& b, ValueId x, double smoothing) {
  const ValueId loss = softplus(b, b.neg(x));
  if (smoothing == 0) return loss;
  return b.add(b.scaled(loss, 1 - smoothing), b.scaled(softplus(b, x), smoothing));
}

struct Judged {
  ValueId loss = kNoValue;
  Pairs rewards;
};

LossValues values_of(Builder& b, const LossCall& call, const Answers& answers,
                     const Judged& judged) {
  const auto& [chosen, rejected] = judged.rewards;
  const ValueId margin = b.sub(chosen, rejected);
  const ValueId correct = b.less(b.fill_like(margin, 0), margin);
  return {b.mul(call.inv_n, b.reduce_sum(judged.loss, {0})),
          {{"pair_loss", judged.loss},
           {"reward_chosen", chosen},
           {"reward_rejected", rejected},
           {"margin", margin},
           {"correct", as_numbers(b, correct)},
           {"chosen_nll", answers.nll.first},
           {"rejected_nll", answers.nll.second}}};
}

Pairs gains_of(Blocks& blocks, const Answers& answers) {
  Builder& b = blocks.builder();
  const Pairs reference = pairs_of(b, blocks.input("reference_nll"));
  return {b.sub(reference.first, answers.nll.first), b.sub(reference.second, answers.nll.second)};
}

Pairs scaled_pair(Builder& b, const Pairs& pair, double factor) {
  return {b.scaled(pair.first, factor), b.scaled(pair.second, factor)};
}

LossValues build_dpo(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const Answers answers = answers_of(blocks, call);
  const Pairs rewards = scaled_pair(b, gains_of(blocks, answers), call.options.beta);
  const ValueId margin = b.sub(rewards.first, rewards.second);
  return values_of(b, call, answers, {logistic_loss(b, margin, call.options.smoothing), rewards});
}

LossValues build_ipo(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const Answers answers = answers_of(blocks, call);
  const Pairs gains = gains_of(blocks, answers);
  const auto by_token = [&](ValueId gain, ValueId n) {
    return b.div(gain, b.maximum(n, b.fill_like(n, 1)));
  };
  const ValueId difference =
      b.sub(by_token(gains.first, answers.n.first), by_token(gains.second, answers.n.second));
  const ValueId error = b.plus(difference, -1 / (2 * call.options.beta));
  return values_of(b, call, answers,
                   {b.mul(error, error), scaled_pair(b, gains, call.options.beta)});
}

LossValues build_simpo(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const Answers answers = answers_of(blocks, call);
  const Pairs rewards = scaled_pair(b, answers.mean, -call.options.beta);
  const ValueId x = b.plus(b.sub(rewards.first, rewards.second), -call.options.gamma);
  return values_of(b, call, answers, {logistic_loss(b, x, call.options.smoothing), rewards});
}

// log(1 - exp(-a)), a > 0: below 1/64 by the first terms of its series, where the difference would
// lose digits.
ValueId log_of_rest(Builder& b, ValueId a) {
  const ValueId small = b.maximum(a, b.fill_like(a, 1e-30));
  const ValueId series =
      b.mul(small, b.plus(b.mul(small, b.plus(b.scaled(small, 1.0 / 6), -0.5)), 1));
  const ValueId limit = b.fill_like(a, 1.0 / 64);
  const ValueId large = b.maximum(a, limit);
  const ValueId rest = b.plus(b.neg(b.unary(OpCode::exp, b.neg(large))), 1);
  return b.unary(OpCode::log, b.select(b.less(a, limit), series, rest));
}

LossValues build_orpo(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const Answers answers = answers_of(blocks, call);
  const auto log_odds = [&](ValueId a) { return b.sub(b.neg(a), log_of_rest(b, a)); };
  const ValueId odds = b.sub(log_odds(answers.mean.first), log_odds(answers.mean.second));
  const ValueId loss =
      b.add(answers.mean.first, b.scaled(softplus(b, b.neg(odds)), call.options.beta));
  return values_of(b, call, answers, {loss, scaled_pair(b, answers.mean, -call.options.beta)});
}

std::vector<InputSpec> labels_alone(const ModelSpec& spec) {
  InputSpec labels = token_labels_input();
  labels.bound = spec.vocab;
  return {labels};
}

std::vector<InputSpec> labels_and_reference(const ModelSpec& spec) {
  std::vector<InputSpec> inputs = labels_alone(spec);
  inputs.push_back({.name = "reference_nll", .per = Per::row, .type = HostType::real});
  return inputs;
}

LossDef preference_loss(std::string_view name, std::string_view help,
                        std::vector<InputSpec> (*inputs)(const ModelSpec&),
                        LossValues (*build)(Blocks&, const LossCall&)) {
  LossDef def{};
  def.name = name;
  def.help = help;
  def.output = "logits";
  def.inputs = inputs;
  def.counted = "samples";
  def.rows_per_sample = 2;
  def.compares_answers = true;
  def.metrics = {"pair_loss", "reward_chosen", "reward_rejected", "margin",
                 "correct",   "chosen_nll",    "rejected_nll"};
  def.build = build;
  return def;
}

}  // namespace

const LossDef kDpo =
    preference_loss("dpo", "direct preference optimization against the model's start",
                    labels_and_reference, build_dpo);
const LossDef kIpo =
    preference_loss("ipo", "identity preference optimization against the model's start",
                    labels_and_reference, build_ipo);
const LossDef kSimpo = preference_loss(
    "simpo", "simple preference optimization, without a reference", labels_alone, build_simpo);
const LossDef kOrpo = preference_loss(
    "orpo",
    "odds ratio preference optimization: the chosen answer's cross entropy beside it, without a "
    "reference",
    labels_alone, build_orpo);

}  // namespace octet
