#include "engine/explain/error_pattern.h"

#include "engine/explain/error_places.h"
#include "engine/explain/error_relation.h"

namespace attnscope {

std::vector<ErrorFinding> error_pattern(const WrongElements& wrong,
                                        const std::vector<std::string>& axes,
                                        const PatternContext& context) {
  std::vector<ErrorFinding> out;
  if (wrong.count == 0) return out;
  if (auto row = moved_rows(wrong, axes)) out.push_back(std::move(*row));
  if (auto dim = moved_dims(wrong, context); dim && out.empty()) out.push_back(std::move(*dim));
  if (auto blocks = other_blocks(wrong, context)) out.push_back(std::move(*blocks));
  for (ErrorFinding& f : error_numbers(wrong)) out.push_back(std::move(f));
  out.push_back(error_places(wrong, axes, context));
  return out;
}

}  // namespace attnscope
