// Models that were trained on this machine (attnscope train), by name: "tiny-v3.2-trained" is the
// preset tiny-v3.2 as training left it, a checkpoint in a folder of the user's data.
#pragma once

#include <string>
#include <string_view>

#include "kernels/params/result.h"

namespace attnscope {

// "tiny-v3.2" of "tiny-v3.2-trained"; empty for other names.
std::string trained_base(std::string_view name);

// $XDG_DATA_HOME/attnscope/trained, else ~/.local/share/attnscope/trained; it need not exist.
Result<std::string> trained_folder();

// The checkpoint of a name that trained_base() knows. AS_BAD_INPUT, with the commands that make it,
// where there is none.
Result<std::string> trained_checkpoint(std::string_view name);

// Parts of the folder of one training.
inline constexpr char kTrainedModel[] = "model", kTrainedIndexer[] = "indexer";

}  // namespace attnscope
