// octet.plan: the report of `octet plan --json`, as its text.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/files.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "library/open_backend.h"
#include "python/src/arguments.h"
#include "train/plan_report.h"

namespace octet::python {
namespace {

// A configuration's file, or its text where there is no file.
struct ConfigCall {
  std::string file, text;
  std::vector<std::string> sets;

  RunConfig load() const {
    return (file.empty() ? parse_config(text, "config", sets) : load_config(file, sets)).config;
  }
};

std::string plan_json(const ConfigCall& call, BackendRequest machine, bool with_buffers) {
  const nb::gil_scoped_release unlocked;
  const RunConfig config = call.load();
  machine.deterministic = config.train.deterministic;
  machine.arithmetic = config.train.arithmetic;
  const Backend backend = open_plan_backend(machine);
  const ModelSpec spec = model_from_config(posix_files(), config);
  const PlanReport report(posix_files(), config, spec, *backend.catalogue);
  const OrderedJson json = report.json(with_buffers ? WithBuffers::yes : WithBuffers::no);
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string output_folder(const ConfigCall& call) {
  return call.load().out;
}

}  // namespace

void bind_plan(nb::module_& module) {
  nb::class_<BackendRequest>(module, "Machine")
      .def(nb::init<std::string, std::string, int, std::string>())
      // nccl, device_index, deterministic
      .def(nb::init<std::string, std::string, int, std::string, std::string, int, bool>());
  nb::class_<ConfigCall>(module, "ConfigCall")
      .def(nb::init<std::string, std::string, std::vector<std::string>>());
  module.def("plan_json", plan_json);
  module.def("output_folder", output_folder);
}

}  // namespace octet::python
