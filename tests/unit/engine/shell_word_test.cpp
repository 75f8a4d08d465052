#include "engine/io/shell_word.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace shell_word_test {

TEST(ShellWord, PlainOnesStayAndOthersAreQuoted) {
  EXPECT_EQ(shell_word("a/b-c_1.json"), "a/b-c_1.json");
  EXPECT_EQ(shell_word("vllm,q_norm=bf16"), "vllm,q_norm=bf16");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my run"), "'my run'");
  EXPECT_EQ(shell_word("$(rm x)"), "'$(rm x)'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
}

}  // namespace shell_word_test
}  // namespace attnscope
