// Zip archives with members that are stored as they are, as torch.save() and numpy.savez() write.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace attnscope::fuzz {

std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace attnscope::fuzz
