#include "app/views/budget.h"

#include <fmt/format.h>

#include <cmath>

#include "app/text/format.h"

namespace attnscope {

Budget budget_of(const TapResult& result) {
  const bool one =
      result.verdict != Verdict::kWrong && result.introduced && result.introduced->max_ulp == 1;
  return {result.budget_used, one};
}

std::string budget_words(const Budget& budget) {
  if (budget.one_ulp) return "1 ulp";
  if (std::isinf(budget.used)) return "it must be exact";
  if (std::isnan(budget.used)) return "not a number";
  if (budget.used > 1) return fmt::format("{} times the tolerance", format_number(budget.used));
  return format_share(budget.used) + " of the tolerance";
}

std::string budget_short(const Budget& budget) {
  if (budget.one_ulp) return "1 ulp";
  if (std::isinf(budget.used)) return "not exact";
  if (budget.used >= 1000) return format_error(budget.used) + "x";
  return budget.used > 1 ? fmt::format("{:.3g}x", budget.used) : format_share(budget.used);
}

}  // namespace attnscope
