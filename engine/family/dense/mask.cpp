#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "engine/family/dense/dense.h"
#include "engine/model/mask_expression.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

as_tensor dense_mask_code(const std::string& text, bool is_score) {
  if (text.empty()) return no_tensor();
  // Params of many steps name it: kept where it is.
  static std::mutex mutex;
  static std::map<std::pair<std::string, bool>, MaskCode> codes;
  const std::scoped_lock lock(mutex);
  const auto [it, fresh] = codes.try_emplace({text, is_score});
  if (fresh) {
    auto parsed = is_score ? parse_score(text) : parse_mask(text);
    if (parsed) it->second = std::move(*parsed);
  }
  return it->second.tensor();
}

std::vector<as_tensor> dense_constants(const ModelConfig& config) {
  std::vector<as_tensor> codes;
  if (!config.dense.mask.empty()) codes.push_back(dense_mask_code(config.dense.mask, false));
  if (!config.dense.score.empty()) codes.push_back(dense_mask_code(config.dense.score, true));
  return codes;
}

}  // namespace attnscope
