// A libtorch may export functions of the C++ library that were linked into it. Used in place of the
// system's, they would meet its other half with the layout of another version.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

#include "reference/torch_module.h"

namespace attnscope::reference {
namespace cxx_library_test {

template <class Function>
std::string library_of(Function* function) {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(function), &info) != 0 ? info.dli_fname : "";
}

TEST(CxxLibrary, FilesystemComesFromWhereTheRestComes) {
  ASSERT_NE(torch_state().version, "");  // libtorch is loaded
  using Path = std::filesystem::path;
  const std::string rest = library_of(&std::get_terminate);
  ASSERT_NE(rest, "");
  EXPECT_EQ(library_of<Path(const Path&, std::error_code&)>(&std::filesystem::canonical), rest);
  EXPECT_EQ(library_of<Path(const Path&, std::error_code&)>(&std::filesystem::read_symlink), rest);
  EXPECT_EQ(library_of<std::uintmax_t(const Path&, std::error_code&)>(&std::filesystem::remove_all),
            rest);
}

}  // namespace cxx_library_test
}  // namespace attnscope::reference
