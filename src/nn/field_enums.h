// The fields of ModelSpec that are one of several (nn/fields.h), with their names in config.json.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "base/named_enum.h"
#include "nn/fields.h"
#include "nn/list.h"
#include "nn/model.h"

namespace octet {

template <auto Member>
int get_enum(const ModelSpec& spec) {
  return static_cast<int>(spec.*Member);
}
template <auto Member>
void set_enum(ModelSpec& spec, int value) {
  spec.*Member = static_cast<std::remove_reference_t<decltype(spec.*Member)>>(value);
}

inline std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const ModelDef* model : all_models()) names.emplace_back(model->name);
  return names;
}
template <typename E>
std::vector<std::string> names_of() {
  const auto names = enum_names<E>();
  return {names.begin(), names.end()};
}

constexpr int value_of(GeluKind kind) {
  return static_cast<int>(kind);
}
constexpr int value_of(RopeScaling scaling) {
  return static_cast<int>(scaling);
}
constexpr int value_of(MlpAct act) {
  return static_cast<int>(act);
}
inline constexpr HfName kHfGelus[] = {{"gelu_new", value_of(GeluKind::tanh)},
                                      {"gelu_pytorch_tanh", value_of(GeluKind::tanh)},
                                      {"gelu", value_of(GeluKind::erf)},
                                      {"gelu_fast", value_of(GeluKind::tanh)}};
inline constexpr HfName kHfScalings[] = {
    {"default", value_of(RopeScaling::none)},  {"linear", value_of(RopeScaling::linear)},
    {"llama3", value_of(RopeScaling::llama3)}, {"dynamic", value_of(RopeScaling::dynamic)},
    {"yarn", value_of(RopeScaling::yarn)},     {"longrope", value_of(RopeScaling::longrope)},
    {"su", value_of(RopeScaling::longrope)}};
inline constexpr HfName kHfActs[] = {{"silu", value_of(MlpAct::silu)},
                                     {"swish", value_of(MlpAct::silu)},
                                     {"gelu_pytorch_tanh", value_of(MlpAct::gelu_tanh)},
                                     {"gelu_new", value_of(MlpAct::gelu_tanh)},
                                     {"gelu_fast", value_of(MlpAct::gelu_tanh)},
                                     {"gelu", value_of(MlpAct::gelu_erf)},
                                     {"gelu_python", value_of(MlpAct::gelu_erf)},
                                     {"relu", value_of(MlpAct::relu)},
                                     {"relu2", value_of(MlpAct::relu2)},
                                     {"quick_gelu", value_of(MlpAct::quick_gelu)}};

constexpr int value_of(ResidualBlock block) {
  return static_cast<int>(block);
}
inline constexpr HfName kHfBlocks[] = {{"basic", value_of(ResidualBlock::basic)},
                                       {"bottleneck", value_of(ResidualBlock::bottleneck)}};

constexpr int value_of(FeedForward block) {
  return static_cast<int>(block);
}
inline constexpr HfName kHfFeedForwards[] = {{"relu", value_of(FeedForward::relu)},
                                             {"gated-gelu", value_of(FeedForward::gated_gelu)}};
constexpr int value_of(PlainActivation activation) {
  return static_cast<int>(activation);
}
inline constexpr HfName kHfActivations[] = {{"swish", value_of(PlainActivation::swish)},
                                            {"silu", value_of(PlainActivation::swish)},
                                            {"relu", value_of(PlainActivation::relu)},
                                            {"gelu", value_of(PlainActivation::gelu)}};

// The decoders that a model with pictures may have.
constexpr HfName text_name(std::string_view name, ModelKind kind) {
  return {name, static_cast<int>(kind)};
}
inline constexpr HfName kTexts[] = {
    text_name("llama", ModelKind::llama), text_name("mistral", ModelKind::mistral),
    text_name("qwen2", ModelKind::qwen2), text_name("qwen3", ModelKind::qwen3)};
inline std::vector<std::string> text_names() {
  std::vector<std::string> names;
  for (const HfName& one : kTexts) names.emplace_back(one.name);
  return names;
}
// By their place in the list, as names in run files have it, and config.json's are read.
inline int get_text(const ModelSpec& spec) {
  const auto at = std::ranges::find(kTexts, static_cast<int>(spec.text), &HfName::value);
  return static_cast<int>(at - std::begin(kTexts));
}
inline void set_text(ModelSpec& spec, int place) {
  spec.text = static_cast<ModelKind>(kTexts[static_cast<size_t>(place)].value);
}
inline constexpr auto kHfTexts = [] {
  auto names = std::to_array(kTexts);
  for (size_t i = 0; i < names.size(); ++i) names[i].value = static_cast<int>(i);
  return names;
}();
inline constexpr ModelEnum kText = {get_text, set_text, text_names, kHfTexts};

constexpr int value_of(VisionTower tower) {
  return static_cast<int>(tower);
}
constexpr int value_of(VisionSelect select) {
  return static_cast<int>(select);
}
inline constexpr HfName kHfTowers[] = {{"clip_vision_model", value_of(VisionTower::clip)},
                                       {"siglip_vision_model", value_of(VisionTower::siglip)}};
inline constexpr HfName kHfSelects[] = {{"default", value_of(VisionSelect::patches)},
                                        {"full", value_of(VisionSelect::all)}};
inline constexpr ModelEnum kTower = {get_enum<&ModelSpec::tower>, set_enum<&ModelSpec::tower>,
                                     names_of<VisionTower>, kHfTowers};
inline constexpr ModelEnum kSelect = {get_enum<&ModelSpec::vision_select>,
                                      set_enum<&ModelSpec::vision_select>, names_of<VisionSelect>,
                                      kHfSelects};
inline constexpr ModelEnum kVisionAct = {
    get_enum<&ModelSpec::vision_act>, set_enum<&ModelSpec::vision_act>, names_of<MlpAct>, kHfActs};
inline constexpr ModelEnum kProjectorAct = {get_enum<&ModelSpec::projector_act>,
                                            set_enum<&ModelSpec::projector_act>, names_of<MlpAct>,
                                            kHfActs};
inline constexpr ModelEnum kKind = {
    get_enum<&ModelSpec::kind>, set_enum<&ModelSpec::kind>, kind_names, {}};
inline constexpr ModelEnum kGelu = {get_enum<&ModelSpec::gelu>, set_enum<&ModelSpec::gelu>,
                                    names_of<GeluKind>, kHfGelus};
inline constexpr ModelEnum kMlpAct = {get_enum<&ModelSpec::mlp_act>, set_enum<&ModelSpec::mlp_act>,
                                      names_of<MlpAct>, kHfActs};
inline constexpr ModelEnum kHeadKind = {
    get_enum<&ModelSpec::head>, set_enum<&ModelSpec::head>, names_of<ModelHead>, {}};
inline constexpr ModelEnum kBlock = {get_enum<&ModelSpec::layer_type>,
                                     set_enum<&ModelSpec::layer_type>, names_of<ResidualBlock>,
                                     kHfBlocks};
inline constexpr ModelEnum kFeedForward = {get_enum<&ModelSpec::feed_forward>,
                                           set_enum<&ModelSpec::feed_forward>,
                                           names_of<FeedForward>, kHfFeedForwards};
inline constexpr ModelEnum kActivation = {get_enum<&ModelSpec::activation>,
                                          set_enum<&ModelSpec::activation>,
                                          names_of<PlainActivation>, kHfActivations};
inline constexpr ModelEnum kScaling = {get_enum<&ModelSpec::rope_scaling>,
                                       set_enum<&ModelSpec::rope_scaling>, names_of<RopeScaling>,
                                       kHfScalings};

}  // namespace octet
