// amax_quantize: params/quantize.h. Where the amax is not known, a launch goes before: with a
// history that holds anything it leaves x to the quantizer, which finds its amax as it reads it.
#include "backends/cuda/kernels/quantize_source.cuh"

namespace octet::cuda {
namespace {

class AmaxQuantize : public Prepared {
 public:
  explicit AmaxQuantize(const Request& request)
      : p_(request.get<AmaxQuantizeParams>()), amax_(request.tail<AmaxQuantizeParams>()) {}

  void launch(const Launch& args) override {
    OwnScale own{.history = p_.n_history > 0 ? args.in<float>(1) : nullptr,
                 .n_history = p_.n_history,
                 .inv_target = 1.0f / p_.target,
                 .scale = args.out<float>(1),
                 .nonfinite = args.out<uint8_t>(2),
                 .next_history = p_.n_history > 0 ? args.out<float>(3) : nullptr};
    if (p_.known) {
      own.amax = args.in<float>(2);
    } else {
      measure(args, own);
    }
    const QuantizeParams& q = p_.quantize;
    QuantizeCall call{.x = args.operands[0], .scale = {.own = own}, .stream = args.stream};
    if (q.by_row) call.by_row = args.out<uint8_t>(0);
    if (q.transposed) call.transposed = args.out<uint8_t>(transposed_at());
    launch_quantize(q, call);
  }

 private:
  int transposed_at() const { return !p_.quantize.by_row ? 0 : p_.n_history > 0 ? 4 : 3; }

  void measure(const Launch& args, OwnScale& own) const {
    void* operands[1 + kMaxMaxima];
    int n = 0;
    if (p_.measures) operands[n++] = args.operands[0];
    for (int i = 0; i < p_.n_maxima; ++i) operands[n++] = args.operands[2 + i];
    auto* scratch = static_cast<std::byte*>(args.scratch);
    own.measured = reinterpret_cast<MeasuredAmax*>(scratch);
    own.joins_x = p_.measures && p_.n_history > 0;
    AmaxCall call{.operands = operands,
                  .scratch = scratch + sizeof(MeasuredAmax),
                  .results = {.measured = own.measured},
                  .stream = args.stream};
    if (own.joins_x) {
      call.results.history = own.history;
      call.results.n_history = own.n_history;
    }
    amax_.launch(call);
  }

  AmaxQuantizeParams p_;
  AmaxLaunches amax_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_amax_quantize(const Request& request) {
  return std::make_unique<AmaxQuantize>(request);
}

}  // namespace octet::cuda
