// amax_quantize: params/quantize.h. Where the amax is not known, a launch goes before: with a
// history that holds anything it leaves x to the quantizer, which finds its amax as it reads it.
#include "backends/cuda/kernels/quantize/quantize_source.cuh"

namespace octet::cuda {
namespace {

class AmaxQuantize : public Prepared {
 public:
  explicit AmaxQuantize(const Request& request)
      : p_(request.get<AmaxQuantizeParams>()), amax_(request.tail<AmaxQuantizeParams>()) {}

  void launch(const Launch& args) override {
    const bool delayed = p_.n_history > 0;
    ScaleSource scale{.n_history = p_.n_history,
                      .inv_target = 1.0f / p_.target,
                      .scale = args.out<float>(1),
                      .nonfinite = args.out<uint8_t>(2)};
    if (delayed) {
      scale.history = args.in<float>(1);
      scale.next_history = args.out<float>(3);
    }
    if (p_.known) {
      scale.from = delayed ? ScaleFrom::history : ScaleFrom::amax;
      scale.amax = args.in<float>(2);
    } else {
      measure(args, scale);
      scale.from = p_.measures && delayed ? ScaleFrom::joined : ScaleFrom::given;
      scale.given = scale.scale;
    }
    const QuantizeParams& q = p_.quantize;
    QuantizeCall call{.x = args.operands[0], .scale = scale, .stream = args.stream};
    if (q.by_row) call.by_row = args.out<uint8_t>(0);
    if (q.transposed) call.transposed = args.out<uint8_t>(p_.transposed_at);
    launch_quantize(q, call);
  }

 private:
  void measure(const Launch& args, const ScaleSource& scale) const {
    void* operands[1 + kMaxMaxima];
    int n = 0;
    if (p_.measures) operands[n++] = args.operands[0];
    for (int i = 0; i < p_.n_maxima; ++i) operands[n++] = args.operands[2 + i];
    amax_.launch({.operands = operands,
                  .scratch = args.scratch,
                  .results = {.nonfinite = scale.nonfinite,
                              .scale = scale.scale,
                              .inv_target = scale.inv_target,
                              .history = {scale.history, scale.n_history, scale.next_history},
                              .leaves_first = p_.measures && p_.n_history > 0},
                  .n_ended = args.counters,
                  .stream = args.stream});
  }

  AmaxQuantizeParams p_;
  AmaxLaunches amax_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_amax_quantize(const Request& request) {
  return std::make_unique<AmaxQuantize>(request);
}

}  // namespace octet::cuda
