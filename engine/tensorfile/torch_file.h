// What torch.save() writes since version 1.6: a zip with a pickle, data.pkl, and a member for the
// bytes of each storage.
#pragma once

#include "engine/tensorfile/tensor_file.h"
#include "engine/tensorfile/zip_file.h"

namespace attnscope {

// Whether it has a data.pkl.
bool is_torch(const ZipFile& zip);

// Strides and offsets are honoured: what is not dense is copied.
Result<TensorFile> open_torch(const ZipFile& zip);

}  // namespace attnscope
