// Algorithm 1 of the Scalify paper: an MLP learns MNIST in FP16; its weights are kept as data and a
// power of two, which is measured again behind every update.
//
//     scaled_mnist FOLDER [STEPS]     FOLDER: the four files of MNIST, unpacked
#include <octet/octet.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

namespace {

constexpr int64_t kBatch = 64, kWidths[] = {784, 128, 128, 10};
constexpr int kLayers = 3;

std::string weight(int layer) {
  return "w" + std::to_string(layer);
}

// The bytes behind a header.
std::string contents(const std::string& path, std::streamoff header) {
  std::ifstream file(path, std::ios::binary);
  if (!file.seekg(header)) {
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Digits {
  std::string pixels, labels;
  explicit Digits(const std::string& name)
      : pixels(contents(name + "-images-idx3-ubyte", 16)),
        labels(contents(name + "-labels-idx1-ubyte", 8)) {}

  std::map<std::string, octet::ScaledArray> batch(size_t first) const {
    octet::GraphArray x{{kBatch, kWidths[0]}, {}}, y{{kBatch}, {}};
    for (size_t i = 0; i < kBatch; ++i) {
      const size_t at = (first + i) % labels.size();
      y.values.push_back(labels[at]);
      for (size_t k = at * 784; k < (at + 1) * 784; ++k)
        x.values.push_back(static_cast<unsigned char>(pixels[k]) / 255.0);
    }
    return {{"x", {x}}, {"labels", {y}}};
  }
};

octet::GraphFunction loss() {
  octet::GraphFunction f("mlp");
  octet::GraphValue x = f.input("x", {kBatch, kWidths[0]});
  for (int i = 0; i < kLayers; ++i) {
    if (i > 0) {
      const std::string shape = "shape = [64," + std::to_string(kWidths[i]) + "], value = 0";
      x = f.node("maximum", {x, f.node("fill", {}, shape)});
    }
    const octet::GraphValue w = f.parameter(weight(i), {kWidths[i + 1], kWidths[i]});
    x = f.node("gemm", {x, w}, "trans_b = true");
  }
  f.output("digit", f.node("argmax", {x}, "axis = 1"));
  const octet::GraphValue labels = f.input("labels", {kBatch}, "i32");
  const octet::GraphValue inv_n = f.node("fill", {}, "shape = [], value = 0.015625");
  f.output("loss", f.node("cross_entropy", {x, labels, inv_n}));
  return f;
}

// next_w = w - lr grad, at a scale of its own.
octet::GraphFunction training_step() {
  octet::GraphFunction step = loss().passes({"autodiff", "simplify"});
  const octet::GraphValue lr = step.node("fill", {}, "shape = [], value = 0.1");
  octet::ScalifySettings settings;
  for (int i = 0; i < kLayers; ++i) {
    const std::string w = weight(i);
    const octet::GraphValue change = step.node("rescale", {step.output_value("grad:" + w), lr});
    const octet::GraphValue next = step.node("sub", {step.input_value(w), change});
    step.erase_output("grad:" + w);
    step.output("next_" + w, step.node("dynamic_rescale", {next}, "norm = l2"));
    settings.scaled_inputs.push_back(w);
    settings.scaled_outputs.push_back("next_" + w);
  }
  return step.scalify(settings).passes({"fp16"});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: scaled_mnist FOLDER [STEPS]\n"), 2;
  const std::string folder = argv[1];
  const size_t n_steps = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1000;
  const Digits train(folder + "/train"), test(folder + "/t10k");
  const octet::Machine machine({.threads = 1});
  octet::CompiledGraph step(training_step(), machine);

  std::map<std::string, octet::ScaledArray> state;
  std::mt19937 random(0);
  for (int i = 0; i < kLayers; ++i) {
    std::normal_distribution<double> normal(0, std::sqrt(2.0 / static_cast<double>(kWidths[i])));
    octet::GraphArray w{{kWidths[i + 1], kWidths[i]}, {}};
    for (int64_t k = 0; k < kWidths[i + 1] * kWidths[i]; ++k) w.values.push_back(normal(random));
    state[weight(i)] = octet::scaled(w);
  }
  const auto call = [&](const Digits& digits, size_t batch) {
    auto inputs = digits.batch(batch * kBatch);
    inputs.insert(state.begin(), state.end());
    return step.scaled(inputs);
  };
  for (size_t n = 0; n < n_steps; ++n) {
    auto outputs = call(train, n);
    for (auto& [name, array] : state) array = outputs.at("next_" + name);
  }
  int64_t n_right = 0;
  constexpr size_t kTests = 30;
  for (size_t n = 0; n < kTests; ++n) {
    const auto digits = call(test, n).at("digit").data.values;
    for (size_t i = 0; i < kBatch; ++i)
      n_right += digits[i] == test.labels[(n * kBatch + i) % test.labels.size()] ? 1 : 0;
  }
  std::printf("accuracy %.3f, scales of weights from 2^%.0f\n",
              static_cast<double>(n_right) / (kTests * kBatch), std::log2(state.at("w0").scale));
}
