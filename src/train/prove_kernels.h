// Proof that a device's kernels compute what they should on the machine at hand: a program runs on
// the CPU with its reference kernels, and each of its launches once more by the device's kernel
// that was planned, alone, on the same operands. The results are compared.
//
//   same        all bits of the reference: what moves or rounds; and, where the reference has the
//               sums of the device's tensor cores (Target::arithmetic), GEMMs with a rule for them
//               (plan/tensor_gemm.h)
//   near        |got - want| <= u |want| + r max |want|, over the result: u is 2^-7 of BF16, 2^-10
//   of
//               FP16, 1e-5 of f32; r is 2e-5; 2e-3 with 8-bit operands, whose products Hopper's
//               tensor cores add with 13 bits behind the largest; 4e-3 with BF16 or FP16, by whose
//               rounding sums differ; four times that of attention's gradient, which subtracts
//               nearly equal ones. Where terms cancel the result is no measure: 2e-5 of the sum of
//               the magnitudes that are added on the way to a value is allowed, too
//               (train/prove_bounds.h)
//   one code    of 8-bit results whose values are computed first: the next code at most. Of moments
//               (math/moment.h) one group in 25 may be expanded otherwise, since fast powers are
//               not exact; what it decodes to is then compared, as what a weight and its remainder
//               are
// A GEMM for whose size the device's library has no algorithm with the rule's sums is near, in a
// line of its own. What an op promises is a fact of it (OpRow::closeness). Memory of the device is
// filled with 0xFF before each launch, so that what is not written is found.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "ir/op_def.h"
#include "plan/backend.h"
#include "plan/node_view.h"

namespace octet {

// The promise of a node's kernels on a device, by a reference with these sums.
Closeness closeness_of(const NodeView& view, Arithmetic arithmetic);
// How far a value may lie from `want`; relative: r of above times the result's largest magnitude.
double tolerance_of(Closeness closeness, Dtype dtype, double want, double relative);
// r, of a graph of one node whose inputs are its operands.
double relative_tolerance(const Graph& graph);
// KernelProof::why_near.
std::string near_text(const Graph& graph, const std::string& why_own_sums);

// One kernel, under the name that plans print.
struct KernelProof {
  int64_t n_nodes = 0;        // that were compared, distinct by types, shapes and attributes
  int64_t n_values = 0;       // that were compared
  int64_t n_other = 0;        // of these, without the reference's bits
  double worst = 0;           // the largest distance, over what is allowed
  std::string why_near = {};  // what ProofDevice says of a GEMM whose bits no algorithm gives
};
using KernelProofs = std::map<std::string, KernelProof>;

// Called in the place of each comparison, which `prove` makes: launches the device's kernel on the
// same operands and throws where a result is too far. It may be called again.
using ProofObserver =
    std::function<void(const std::string& kernel, const std::function<void()>& prove)>;

// Whose kernels are proved, and against whose; all must outlive what uses it.
struct Prover {
  const Backend& device;
  const Backend& reference;  // the CPU's scalar kernels
  KernelProofs& proofs;
  ProofObserver observer = {};
};

// Prepares, for a program whose memory is the CPU's, what is described above. A launch throws
// Error{device} that names kernel, node and element where a result is too far from the reference's.
class ProvingCatalogue : public Catalogue {
 public:
  explicit ProvingCatalogue(const Prover& prover);
  ~ProvingCatalogue() override;

  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override;
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override;
  void strike(std::string row) override;
  bool takes_form(const Graph& graph, const Node& form) const override {
    return prover_.device.catalogue->takes_form(graph, form);
  }

 private:
  class NodeProof;

  const Prover& prover_;
  std::map<std::string, std::shared_ptr<NodeProof>> nodes_;  // by the text of their graph
};

}  // namespace octet
