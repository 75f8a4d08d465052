// Files of tensors that other engines leave: safetensors, what torch.save() writes (.pt), numpy's
// .npz and .npy, told apart by their first bytes. In dicts and lists of a .pt names are joined by
// dots: {"step": [{"q": ..}]} is step.0.q; numbers in it become tensors of one element.
#pragma once

#include <string>

#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

// AS_BAD_INPUT names the file and what to do. Nothing of a file is run. Dense tensors stay in the
// mapped file; strided ones are copied, as are numpy's of another order.
Result<TensorFile> open_dump(const std::string& path);

}  // namespace attnscope
