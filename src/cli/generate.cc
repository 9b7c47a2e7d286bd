#include "runtime/generate.h"
#include "cli/output.h"

#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/forward_arguments.h"
#include "runtime/vocabulary.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser generate gpt.tesser --weights run1 --vocabulary data --prompt "ROMEO:" --length 400 --temperature 0.8

The forward program takes tokens int64[B, S] and gives logits [B, S, V].
The vocabulary is {"characters": "..."}: token i is the i-th character.)";

struct Arguments {
  ForwardArguments forward;
  std::string prompt = "\n";
  std::optional<std::filesystem::path> vocabulary;
  runtime::GenerateOptions options;
};

Result<runtime::Vocabulary> read_vocabulary(const Arguments& arguments) {
  if (arguments.vocabulary) {
    return runtime::Vocabulary::read(*arguments.vocabulary);
  }
  const std::filesystem::path beside =
      std::filesystem::absolute(arguments.forward.program / "").parent_path().parent_path() / "vocabulary.json";
  std::error_code error;
  if (!std::filesystem::exists(beside, error)) {
    return not_found(
        fmt::format("{}: no such file; say where the vocabulary is with --vocabulary FILE", beside.string()));
  }
  return runtime::Vocabulary::read(beside);
}

Result<int> run_generate(const Arguments& arguments) {
  TESSER_ASSIGN_OR_RETURN(const runtime::Vocabulary vocabulary, read_vocabulary(arguments));
  TESSER_ASSIGN_OR_RETURN(const std::vector<std::int64_t> prompt, vocabulary.encode(arguments.prompt));
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Executor> executor, load_forward(arguments.forward));
  TESSER_ASSIGN_OR_RETURN(const runtime::LanguageModel model, runtime::language_model(executor->program()));
  if (model.vocabulary != vocabulary.size()) {
    return invalid_input(fmt::format("the vocabulary has {} characters, the logits of '{}' have {}", vocabulary.size(),
                                     executor->program().name, model.vocabulary));
  }
  print_output("{}", arguments.prompt);
  const Result<void> generated = runtime::generate(*executor, prompt, arguments.options, [&](std::int64_t token) {
    print_output("{}", vocabulary.decode(token));
    return flush_output().has_value();
  });
  print_output("\n");
  TESSER_RETURN_IF_ERROR(generated);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a character language model");
  const auto arguments = std::make_shared<Arguments>();
  add_forward_arguments(*command, arguments->forward);
  command->add_option("--prompt", arguments->prompt, "Text to continue (a line break where it is not given)");
  command->add_option("--length", arguments->options.length, "Characters to generate")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--temperature", arguments->options.temperature,
                   "0 takes the likeliest character, 1 draws from the model's distribution")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", arguments->options.seed, "Seed of the draws")->capture_default_str();
  command->add_option("--vocabulary", arguments->vocabulary,
                      "vocabulary.json, or a directory that holds it (beside the program where it is not given)");
  command->footer(kExamples);
  command->callback([arguments, &action] { action = [arguments] { return run_generate(*arguments); }; });
}

}  // namespace tesser::cli
