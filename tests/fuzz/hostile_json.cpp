#include "tests/fuzz/hostile_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace attnscope::fuzz {

void each_field(nlohmann::json& root, const std::function<void(const std::string& place)>& visit) {
  static const std::vector<nlohmann::json> kOthers = {nullptr,
                                                      -1,
                                                      std::int64_t{1} << 62,
                                                      9223372036854775808ULL,
                                                      1e300,
                                                      std::int64_t{1} << 31,
                                                      -1e308,
                                                      "nan",
                                                      std::int64_t{1} << 20,
                                                      INT64_MIN,
                                                      "",
                                                      "../../etc/passwd",
                                                      std::string(300, 'x'),
                                                      nlohmann::json::array(),
                                                      nlohmann::json::object(),
                                                      true,
                                                      0};
  std::size_t turn = 0;
  const std::function<void(nlohmann::json&, const std::string&)> walk =
      [&](nlohmann::json& at, const std::string& place) {
        if (at.is_structured()) {
          // Long lists are alike: their first items.
          std::size_t shown = 0;
          for (auto it = at.begin(); it != at.end() && shown < (at.is_array() ? 7u : 1000u);
               ++it, ++shown) {
            walk(*it, place + "/" + (at.is_object() ? it.key() : std::to_string(shown)));
          }
        }
        if (place.empty()) return;
        const nlohmann::json was = at;
        at = kOthers[turn++ % kOthers.size()];
        visit(place + " = " + at.dump());
        at = was;
      };
  walk(root, "");
}

}  // namespace attnscope::fuzz
