#include "parallel/schedule/idle_formula.h"

namespace stagecoach {

std::optional<IdleFormula> idle_formula(const std::string& schedule, int p, int m, int v) {
  const double others = p - 1;
  if (schedule == "naive") {
    return IdleFormula{"(p - 1) / p", others / p, ""};
  }
  if (schedule == "gpipe" || schedule == "1f1b") {
    return IdleFormula{"(p - 1) / (m + p - 1)", others / (m + others), ""};
  }
  const auto from_p_on = [&](double share) { return m >= p ? std::optional(share) : std::nullopt; };
  if (schedule == "interleaved" || schedule == "foldx_fifo" || schedule == "foldx_aiao") {
    const double share = others / (static_cast<double>(v) * m + others);
    if (v == 1) {  // as 1F1B or GPipe
      return IdleFormula{"(p - 1) / (v m + p - 1)", share, ""};
    }
    return IdleFormula{"(p - 1) / (v m + p - 1)", from_p_on(share), "m >= p"};
  }
  if (schedule == "zb-h1") {
    return IdleFormula{"(p - 1) / (3 m + p - 1)", from_p_on(others / (3.0 * m + others)), "m >= p"};
  }
  return std::nullopt;
}

}  // namespace stagecoach
