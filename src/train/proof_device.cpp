#include "train/proof_device.h"

#include "base/error.h"
#include "plan/row_unavailable.h"

namespace octet {

ProofDevice prepare_proof(const Graph& graph, const Backend& device) {
  Catalogue& catalogue = *device.catalogue;
  const auto make = [&] { return std::make_unique<BoundGraph>(graph, *device.device, catalogue); };
  const Arithmetic arithmetic = catalogue.target().arithmetic;
  try {
    return {make()};
  } catch (const RowUnavailable&) {
    throw;
  } catch (const Error& error) {
    if (arithmetic == Arithmetic::own) throw;
    catalogue.set_arithmetic(Arithmetic::own);
    try {
      ProofDevice own{make(), error.what()};
      catalogue.set_arithmetic(arithmetic);
      return own;
    } catch (const Error&) {
      catalogue.set_arithmetic(arithmetic);
    }
    throw;
  }
}

}  // namespace octet
