// A fixture made by tools/make_goldens.py, or of transformers by tools/parity.py (hf_*), and the
// comparison with it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/model.h"

namespace octet::golden {

struct Golden {
  ModelSpec spec;
  BatchSize batch;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  std::map<std::string, std::vector<double>> tensors;  // "w:", "g:", "w1:" + parameter; "loss", ...
  std::map<std::string, Shape> shapes;

  const std::vector<double>& at(const std::string& name) const;
  // Every input of a graph of this model: weights, batch and step scalars.
  std::map<std::string, std::vector<double>> inputs() const;
};

Golden load_golden(const std::string& name);

// The names of all fixtures, without their extension.
std::vector<std::string> golden_names();

// Largest difference relative to the largest magnitude of what is expected; infinite where a value
// is not finite, the sizes differ, or all that is expected is zero.
double relative_distance(const std::vector<double>& got, const std::vector<double>& expected);

}  // namespace octet::golden
