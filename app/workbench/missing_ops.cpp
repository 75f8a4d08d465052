#include "app/workbench/missing_ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "app/views/op_order.h"
#include "engine/capture/again.h"

namespace attnscope {
namespace {

// Tables are kept at every level but one; what a panel draws of an op are its numbers.
bool has_values(const StepTrace* step, int layer, as_op_id op) {
  const OpTrace* trace = step != nullptr ? step->find(layer, op) : nullptr;
  return trace != nullptr && std::ranges::any_of(trace->taps, [](const TapCopy& tap) {
           return tap.value.dtype == AS_BF16 || tap.value.dtype == AS_F32;
         });
}

}  // namespace

std::string missing_ops(const Workbench& bench, int layer, std::initializer_list<as_role> roles) {
  const Capture* capture = bench.capture();
  if (capture == nullptr) return "";
  std::vector<std::string> names;
  for (const as_role role : roles) {
    const auto op = op_of_role(*capture->info(), role);
    if (op && !has_values(bench.step(), layer, *op)) names.emplace_back(as_op_find(*op)->name);
  }
  if (names.empty()) return "";
  const CaptureIndex& index = capture->index();
  const std::string why =
      index.level == CaptureLevel::kFull
          ? fmt::format("its filter is {}", index.filter)
          : fmt::format("this capture's level is {}", capture_level_name(index.level));
  const bool one = layer >= 0;
  return fmt::format("The taps of {}{} were not recorded: {}. {}", fmt::join(names, " and "),
                     one ? fmt::format(" of layer {}", layer) : "", why,
                     record_again(index, capture->path(),
                                  fmt::format("--level full{} --op {}",
                                              one ? fmt::format(" --layer {}", layer) : "",
                                              fmt::join(names, ","))));
}

}  // namespace attnscope
