// Compressed entries of DeepSeek-V4 and its index keys: softmax pools of the tokens of a window.
#pragma once

#include "engine/session/what_if/pooled_tokens.h"

namespace attnscope {

const FamilyEntries& deepseek_v4_entries();

}  // namespace attnscope
