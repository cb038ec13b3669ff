// octet.load: a LoadedModel, its arrays and callbacks.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "base/error.h"
#include "library/loaded_model.h"
#include "python/src/arguments.h"

namespace octet::python {
namespace {

// Raises what a signal's handler raised: KeyboardInterrupt, as a rule.
void check_signals() {
  const nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Warnings become Python's.
Log python_log() {
  return Log([](LogLevel level, const std::string& message) {
    if (level != LogLevel::warning) return;
    const nb::gil_scoped_acquire locked;
    if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) throw nb::python_error();
  });
}

struct ModelCall {
  std::string model, tokenizer, recipe;
  int64_t context = 0;
};

std::unique_ptr<LoadedModel> load(const ModelCall& call, const BackendRequest& machine) {
  const nb::gil_scoped_release unlocked;
  return std::make_unique<LoadedModel>(machine,
                                       GenerationRequest{.model = call.model,
                                                         .tokenizer = call.tokenizer,
                                                         .recipe = call.recipe,
                                                         .context = call.context},
                                       python_log());
}

void logits_into(LoadedModel& model, nb::handle tokens, nb::handle out) {
  const BufferView from(tokens, Access::read), to(out, Access::write);
  const nb::gil_scoped_release unlocked;
  model.logits(from.words<int32_t>(), to.writable_words<float>(), check_signals);
}

nb::tuple nll(LoadedModel& model, nb::handle tokens, int64_t batch, int64_t seq) {
  const BufferView from(tokens, Access::read);
  const auto ids = from.words<int32_t>();
  std::vector<int32_t> copy(ids.begin(), ids.end());
  NllSum sum;
  {
    const nb::gil_scoped_release unlocked;
    sum = model.nll(std::move(copy), {.batch = batch, .seq = seq}, check_signals);
  }
  return nb::make_tuple(sum.sum, sum.n_tokens);
}

// `batch` texts at a time.
struct GenerateCall {
  int64_t max_tokens = 100, batch = 1;
  std::vector<std::string> stop;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  uint32_t seed = 1;

  Sampling sampling() const {
    return {.temperature = temperature,
            .top_k = top_k,
            .top_p = top_p,
            .min_p = min_p,
            .repetition_penalty = repetition_penalty,
            .seed = seed};
  }
};

// Text, or bytes that may be no UTF-8.
std::string text_of(nb::handle given) {
  if (!nb::isinstance<nb::bytes>(given)) return nb::cast<std::string>(given);
  const auto bytes = nb::cast<nb::bytes>(given);
  return {bytes.c_str(), bytes.size()};
}

nb::bytes as_bytes(const std::string& text) {
  return nb::bytes(text.data(), text.size());
}

// (prompt as said, completion, stop, new tokens) of each.
nb::list generate(LoadedModel& model, const nb::list& given, const GenerateCall& call,
                  nb::handle on_text) {
  std::vector<std::string> texts;
  for (const nb::handle one : given) texts.push_back(text_of(one));
  std::vector<Prompt> prompts;
  std::vector<Completion> done;
  {
    const nb::gil_scoped_release unlocked;
    GenerateOptions options = model.options();
    options.max_tokens = call.max_tokens;
    options.stop_texts = call.stop;
    options.on_text = [&](size_t index, std::string_view text) {
      const nb::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!on_text.is_none()) on_text(index, nb::bytes(text.data(), text.size()));
    };
    for (const std::string& text : texts) {
      prompts.push_back(
          {.tokens = prompt_tokens(model.tokenizer(), text), .sampling = call.sampling()});
    }
    done = model.generate(prompts, call.batch, options);
  }
  nb::list result;
  for (size_t i = 0; i < done.size(); ++i) {
    result.append(nb::make_tuple(as_bytes(model.said(prompts[i].tokens)), as_bytes(done[i].text),
                                 std::string(enum_name(done[i].stop)), nb::cast(done[i].tokens)));
  }
  return result;
}

// What Model.translate asks for; an empty word of early stopping, and none of the others: the
// files'.
struct TranslateCall {
  std::optional<int64_t> max_tokens;
  int64_t beams = 0;
  std::optional<double> length_penalty;
  std::string early_stopping;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0;
  uint32_t seed = 1;
  std::optional<std::string> source_prefix;
  int64_t batch = 1;

  TranslationCall call() const {
    return {.max_tokens = max_tokens,
            .n_beams = beams,
            .length_penalty = length_penalty,
            .early_stopping = enum_from_name<EarlyStopping>(early_stopping),
            .sampling = {.temperature = temperature,
                         .top_k = top_k,
                         .top_p = top_p,
                         .min_p = min_p,
                         .seed = seed},
            .source_prefix = source_prefix,
            .batch = batch};
  }
};

nb::list translate(LoadedModel& model, const std::vector<std::string>& sources,
                   const TranslateCall& call) {
  std::vector<TranslatedSource> done;
  {
    const nb::gil_scoped_release unlocked;
    done = model.translate(sources, call.call());
  }
  nb::list texts;
  for (const TranslatedSource& one : done) texts.append(as_bytes(one.text));
  return texts;
}

nb::list weight_names(LoadedModel& model) {
  nb::list names;
  for (const ParameterSpec& parameter : model_parameters(model.source().spec))
    names.append(parameter.name);
  return names;
}

nb::dlpack::dtype type_of(SafeDtype stored) {
  if (stored == SafeDtype::f32) return nb::dtype<float>();
  const auto code =
      stored == SafeDtype::bf16 ? nb::dlpack::dtype_code::Bfloat : nb::dlpack::dtype_code::Float;
  return {static_cast<uint8_t>(code), 16, 1};
}

const ParameterSpec& parameter_of(const std::vector<ParameterSpec>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const ParameterSpec& one) { return one.name == name; });
  if (found != all.end()) return *found;
  throw Error(ErrorCode::invalid_argument, "[model] expected the name of a weight, got {}", name);
}

// Takes over memory with a parameter's elements.
using Bytes = std::unique_ptr<std::vector<std::byte>>;
struct OwnedArray {
  void* data;
  std::vector<size_t> shape;
  nb::capsule owner;

  OwnedArray(Bytes bytes, const ParameterSpec& parameter)
      : data(bytes->data()),
        shape(parameter.shape.begin(), parameter.shape.end()),
        owner(bytes.release(),
              [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); }) {}
};

Bytes read_f32(LoadedModel& model, const std::string& name) {
  const nb::gil_scoped_release unlocked;
  const std::vector<float> values = model.weights().read(name);
  const auto bytes = std::as_bytes(std::span(values));
  return std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end());
}

Bytes read_stored(LoadedModel& model, const std::string& name) {
  const nb::gil_scoped_release unlocked;
  auto bytes = std::make_unique<std::vector<std::byte>>(model.weights().stored(name).n_bytes());
  model.weights().read_stored(name, *bytes, 0);
  return bytes;
}

// An array that exports DLPack.
nb::object weight(LoadedModel& model, const std::string& name) {
  const auto parameters = model_parameters(model.source().spec);
  const ParameterSpec& parameter = parameter_of(parameters, name);
  const bool is_plain = model.is_plain(name);
  const nb::dlpack::dtype type =
      is_plain ? type_of(model.weights().stored(name).stored) : nb::dtype<float>();
  const OwnedArray a(is_plain ? read_stored(model, name) : read_f32(model, name), parameter);
  return nb::cast(nb::ndarray<nb::array_api, nb::device::cpu>(
      a.data, a.shape.size(), a.shape.data(), a.owner, nullptr, type));
}

nb::object weight_f32(LoadedModel& model, const std::string& name) {
  const auto parameters = model_parameters(model.source().spec);
  const OwnedArray a(read_f32(model, name), parameter_of(parameters, name));
  return nb::cast(nb::ndarray<nb::numpy, float, nb::device::cpu>(a.data, a.shape.size(),
                                                                 a.shape.data(), a.owner));
}

nb::list tokens_of(const LoadedModel& model, nb::handle given) {
  const std::string text = text_of(given);
  nb::list ids;
  for (const int32_t id : model.tokens_of(text)) ids.append(id);
  return ids;
}

nb::dict facts(const LoadedModel& model) {
  const ModelSource& source = model.source();
  nb::dict result;
  result["kind"] = std::string(model_def(source.spec.kind).name);
  result["vocab"] = source.spec.vocab;
  result["context"] = model.context();
  result["parameters"] = parameter_count(source.spec);
  result["recipe"] = source.recipe;
  result["tokenizer"] = source.tokenizer;
  result["folder"] = source.folder;
  return result;
}

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<ModelCall>(module, "ModelCall")
      .def(nb::init<std::string, std::string, std::string, int64_t>());
  nb::class_<GenerateCall>(module, "GenerateCall")
      .def(nb::init<int64_t, int64_t, std::vector<std::string>, double, int64_t, double, double,
                    double, uint32_t>());
  nb::class_<TranslateCall>(module, "TranslateCall")
      .def(nb::init<std::optional<int64_t>, int64_t, std::optional<double>, std::string, double,
                    int64_t, double, double, uint32_t, std::optional<std::string>, int64_t>(),
           nb::arg().none(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg());
  nb::class_<LoadedModel>(module, "LoadedModel")
      .def("logits", logits_into)
      .def("nll", nll)
      .def("generate", generate, nb::arg(), nb::arg(), nb::arg().none())
      .def("translate", translate)
      .def("weight_names", weight_names)
      .def("weight", weight)
      .def("weight_f32", weight_f32)
      .def("tokens_of", tokens_of)
      .def("facts", facts);
  module.def("load", load);
}

}  // namespace octet::python
