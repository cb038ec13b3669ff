// Attention through cuDNN's graph interface. The library is opened where it is first wanted, so
// that a machine without it still runs the module.
#include "backends/cuda/kernels/attention/attention.h"

#ifdef OCTET_CUDNN

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <unordered_map>

#include "backends/cuda/launch/context.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // what the frontend's dynamic loading resolves names in
}

namespace octet::cuda {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : int64_t { kQ = 1, kK, kV, kO, kStats, kDout, kDq, kDk, kDv };

// Layers of one shape share a plan.
struct PlanKey {
  AttentionParams params;
  bool backward = false;
  bool deterministic = false;  // a process may open the module a second time, to repeat its bits
  auto operator<=>(const PlanKey&) const = default;
};

struct Plan {
  Graph graph;
  int64_t workspace_bytes = 0;
  std::string refusal;  // why the library does not take the problem; empty where it does
};

struct Library {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;  // the handle's
  std::string problem;            // why there is no handle
  std::map<PlanKey, std::shared_ptr<Plan>> plans;

  ~Library() {
    if (handle != nullptr) fe::detail::destroy_handle(handle);
  }
};

void start(Library& library, const Context& context) {
  if (fe::cudnn_dlhandle == nullptr) {
    library.problem = "libcudnn.so.9 not found";
    return;
  }
  try {
    const cudnnStatus_t status = fe::detail::create_handle(&library.handle);
    if (status == CUDNN_STATUS_SUCCESS) {
      fe::detail::set_stream(library.handle, context.stream);
      library.stream = context.stream;
    } else {
      library.problem = "cuDNN did not start: status " + std::to_string(static_cast<int>(status));
    }
  } catch (const std::runtime_error& error) {  // a symbol or the CUDA runtime is missing
    library.problem = error.what();
  }
  if (!library.problem.empty()) library.handle = nullptr;
}

// nullptr where cuDNN is not on this machine.
std::shared_ptr<Library> open_library(Context& context) {
  auto& shared = context.shared["cudnn"];
  if (shared == nullptr) {
    auto library = std::make_shared<Library>();
    for (const char* name : {"libcudnn.so.9", "libcudnn.so"}) {
      if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    start(*library, context);
    shared = library;
  }
  auto library = std::static_pointer_cast<Library>(shared);
  return library->handle != nullptr ? library : nullptr;
}

// A [batch * len, heads * head_dim] tensor as the library sees it: [batch, heads, len, head_dim].
struct Layout {
  std::vector<int64_t> dim, stride;
};
Layout heads_layout(const AttentionParams& p, int64_t heads, int64_t len) {
  const int64_t row = heads * p.head_dim;
  return {{p.batch, heads, len, p.head_dim}, {len * row, p.head_dim, row, 1}};
}
Layout q_layout(const AttentionParams& p) {
  return heads_layout(p, p.heads, p.q_len);
}
Layout kv_layout(const AttentionParams& p) {
  return heads_layout(p, p.kv_heads, p.kv_len);
}
Layout stats_layout(const AttentionParams& p) {
  return {{p.batch, p.heads, p.q_len, 1}, {p.heads * p.q_len, p.q_len, 1, 1}};
}

Tensor input(Graph& graph, const Layout& layout, Uid uid) {
  return graph.tensor(
      fe::graph::Tensor_attributes().set_uid(uid).set_dim(layout.dim).set_stride(layout.stride));
}
Tensor stats_input(Graph& graph, const Layout& layout) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(kStats)
                          .set_dim(layout.dim)
                          .set_stride(layout.stride)
                          .set_data_type(fe::DataType_t::FLOAT));
}
fe::graph::Tensor_attributes& output(const Tensor& tensor, const Layout& layout, Uid uid) {
  return tensor->set_output(true).set_uid(uid).set_dim(layout.dim).set_stride(layout.stride);
}

void set_types(Graph& graph, const AttentionParams& p) {
  graph.set_io_data_type(p.dtype == Dtype::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

// Its left bound is how many keys a query sees, its own among them.
template <typename Options>
void set_mask(Options& options, const AttentionParams& p) {
  options.set_causal_mask(p.causal);
  if (p.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(p.window));
}

// cuDNN's statistics are the natural logarithm of the sum of exponentials, as the op's lse.
void describe_forward(Graph& graph, const AttentionParams& p) {
  const Layout q = q_layout(p), kv = kv_layout(p);
  auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
  options.set_attn_scale(p.scale);
  set_mask(options, p);
  auto [o, stats] =
      graph.sdpa(input(graph, q, kQ), input(graph, kv, kK), input(graph, kv, kV), options);
  output(o, q, kO);
  output(stats, stats_layout(p), kStats).set_data_type(fe::DataType_t::FLOAT);
}

void describe_backward(Graph& graph, const AttentionParams& p, bool deterministic) {
  const Layout q = q_layout(p), kv = kv_layout(p);
  auto options = fe::graph::SDPA_backward_attributes().set_name("attention_grad");
  options.set_attn_scale(p.scale);
  set_mask(options, p);
  options.set_deterministic_algorithm(deterministic);
  auto [dq, dk, dv] = graph.sdpa_backward(
      input(graph, q, kQ), input(graph, kv, kK), input(graph, kv, kV), input(graph, q, kO),
      input(graph, q, kDout), stats_input(graph, stats_layout(p)), options);
  output(dq, q, kDq);
  output(dk, kv, kDk);
  output(dv, kv, kDv);
}

std::shared_ptr<Plan> make_plan(Library& library, const PlanKey& key) {
  const AttentionParams& p = key.params;
  // Before 9.16 a ragged backward reads lengths from the host's memory at every run: no recording.
  const bool is_ragged = p.q_len % 128 != 0 || p.kv_len % 128 != 0;
  auto plan = std::make_shared<Plan>();
  if (key.backward && is_ragged && fe::detail::get_backend_version() <= 91500) {
    plan->refusal = "lengths that are no multiples of 128 want version 9.16";
    return plan;
  }
  const auto is_good = [&](auto status) {
    if (!status.is_good()) plan->refusal = status.get_message();
    return status.is_good();
  };
  try {
    set_types(plan->graph, p);
    if (key.backward) {
      describe_backward(plan->graph, p, key.deterministic);
    } else {
      describe_forward(plan->graph, p);
    }
    if (is_good(plan->graph.build(library.handle, {fe::HeurMode_t::A})))
      static_cast<void>(is_good(plan->graph.get_workspace_size(plan->workspace_bytes)));
  } catch (const std::exception& error) {
    plan->refusal = error.what();
  }
  return plan;
}

class LibraryKernel : public Prepared {
 public:
  LibraryKernel(std::shared_ptr<Library> library, std::shared_ptr<Plan> plan, bool backward)
      : library_(std::move(library)), plan_(std::move(plan)), backward_(backward) {}

  void launch(const Launch& args) override {
    std::unordered_map<int64_t, void*> places;
    const auto put = [&](std::initializer_list<Uid> uids, void* const* from) {
      for (const Uid uid : uids) places[uid] = *from++;
    };
    if (backward_) {
      put({kDout, kQ, kK, kV, kO, kStats}, args.operands);
      put({kDq, kDk, kDv}, args.results);
    } else {
      put({kQ, kK, kV}, args.operands);
      put({kO, kStats}, args.results);
    }
    if (library_->stream != args.stream) {  // a caller's, or no longer
      fe::detail::set_stream(library_->handle, args.stream);
      library_->stream = args.stream;
    }
    auto status = plan_->graph.execute(library_->handle, places, args.scratch);
    if (!status.is_good()) throw ModuleError("[attention] cuDNN: " + status.get_message());
  }

 private:
  std::shared_ptr<Library> library_;
  std::shared_ptr<Plan> plan_;
  bool backward_;
};

std::unique_ptr<Prepared> prepare(const Request& request, bool backward) {
  const auto p = request.get<AttentionParams>();
  const auto library = open_library(request.context);
  if (library == nullptr) throw KernelUnavailable("[attention] cuDNN is not there");
  const bool deterministic = backward && request.context.deterministic;
  const PlanKey key{.params = p, .backward = backward, .deterministic = deterministic};
  if (!library->plans.contains(key)) library->plans[key] = make_plan(*library, key);
  const std::shared_ptr<Plan> plan = library->plans.at(key);
  if (!plan->refusal.empty())
    throw KernelUnavailable("[attention] cuDNN does not take the problem: " + plan->refusal);
  if (plan->workspace_bytes > request.scratch_bytes) {
    throw KernelUnavailable("[attention] cuDNN wants " + std::to_string(plan->workspace_bytes) +
                            " bytes of workspace, the plan reserved " +
                            std::to_string(request.scratch_bytes));
  }
  return std::make_unique<LibraryKernel>(library, plan, backward);
}

}  // namespace

std::unique_ptr<Prepared> library_attention(const Request& request) {
  return prepare(request, false);
}
std::unique_ptr<Prepared> library_attention_grad(const Request& request) {
  return prepare(request, true);
}

std::string attention_library_version(Context& context, std::string& problem) {
  if (open_library(context) == nullptr) {
    problem = std::static_pointer_cast<Library>(context.shared.at("cudnn"))->problem;
    return "";
  }
  const auto version = static_cast<int64_t>(fe::detail::get_backend_version());
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace octet::cuda

#else

namespace octet::cuda {

std::unique_ptr<Prepared> library_attention(const Request&) {
  throw KernelUnavailable("[attention] built without cuDNN");
}
std::unique_ptr<Prepared> library_attention_grad(const Request& request) {
  return library_attention(request);
}
std::string attention_library_version(Context&, std::string& problem) {
  problem = "the module was built without cuDNN's headers";
  return "";
}

}  // namespace octet::cuda

#endif
