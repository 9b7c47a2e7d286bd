// `tesser completion SHELL`: a script by which the shell completes commands, options and jobs' ids, made from the
// commands themselves.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/output.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  source <(tesser completion bash)                                      for this shell; zsh likewise
  tesser completion bash > ~/.local/share/bash-completion/completions/tesser
  tesser completion zsh > ~/.zfunc/_tesser                              with fpath+=(~/.zfunc) in ~/.zshrc
  tesser completion fish > ~/.config/fish/completions/tesser.fish

Jobs' ids come from the server that you are logged in to.)";

struct Command {
  std::string words;  // "train", "hub serve"
  std::string about;
  std::vector<std::string> options;  // "--json"
  std::vector<std::string> subcommands;
  bool takes_job = false;
};

void collect(const CLI::App& app, const std::string& words, std::vector<Command>& commands) {
  Command command{words, app.get_description(), {}, {}, false};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      command.options.push_back("--" + name);
    }
    for (const std::string& name : option->get_snames()) {
      command.options.push_back("-" + name);
    }
    command.takes_job |= option->get_positional() && option->get_single_name() == "job";
  }
  std::sort(command.options.begin(), command.options.end());
  const std::size_t place = commands.size();
  commands.push_back(command);
  for (const CLI::App* each : app.get_subcommands({})) {
    commands[place].subcommands.push_back(each->get_name());
    collect(*each, words + (words.empty() ? "" : " ") + each->get_name(), commands);
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

// For bash and zsh, whose words here have no quotes in them, and for fish, where a backslash takes them.
std::string quoted(const std::string& text) {
  std::string made = "'";
  for (const char character : text) {
    made += character == '\'' || character == '\\' ? std::string{'\\', character} : std::string{character};
  }
  return made + "'";
}

constexpr const char* kJobs = "tesser list --ids --limit 200 2>/dev/null";

std::string bash_script(const std::vector<Command>& commands) {
  std::string cases;
  for (const Command& command : commands) {
    cases +=
        fmt::format("    {})\n      words={}\n      jobs={}\n      ;;\n", quoted(command.words),
                    quoted(joined(command.subcommands) + " " + joined(command.options)), command.takes_job ? 1 : 0);
  }
  return fmt::format(R"sh(# Completion of tesser for bash; made by `tesser completion bash`.
_tesser() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command='' words='' jobs=0 word
  COMPREPLY=()
  _tesser_of ''
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    # Words that are arguments stand behind the command.
    if [[ $word != -* && " $words " == *" $word "* ]]; then
      command="${{command:+$command }}$word"
      _tesser_of "$command"
    fi
  done
  if [[ $jobs == 1 && $current != -* ]]; then
    words="$({})"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
_tesser_of() {{
  words='' jobs=0
  case "$1" in
{}  esac
}}
complete -o default -F _tesser tesser
)sh",
                     kJobs, cases);
}

std::string zsh_script(const std::vector<Command>& commands) {
  std::string cases;
  for (const Command& command : commands) {
    cases += fmt::format("    {})\n      candidates=({} {}) jobs={}\n      ;;\n", quoted(command.words),
                         joined(command.subcommands), joined(command.options), command.takes_job ? 1 : 0);
  }
  return fmt::format(R"sh(#compdef tesser
# Completion of tesser for zsh; made by `tesser completion zsh`.
_tesser() {{
  local command='' word
  local -a candidates
  local -i jobs=0
  _tesser_of ''
  for word in ${{words[2,CURRENT-1]}}; do
    # Words that are arguments stand behind the command.
    if [[ $word != -* ]] && (( ${{candidates[(Ie)$word]}} )); then
      command="${{command:+$command }}$word"
      _tesser_of "$command"
    fi
  done
  if [[ $jobs == 1 && $PREFIX != -* ]]; then
    candidates=(${{(f)"$({})"}})
  fi
  compadd -a candidates || _files
}}
_tesser_of() {{
  case "$1" in
{}  esac
}}
if [[ ${{funcstack[1]}} == _tesser ]]; then
  _tesser "$@"
else
  compdef _tesser tesser
fi
)sh",
                     kJobs, cases);
}

std::string fish_script(const std::vector<Command>& commands) {
  std::string text = "# Completion of tesser for fish; made by `tesser completion fish`.\n";
  for (const Command& command : commands) {
    std::string condition = "__fish_use_subcommand";
    if (!command.words.empty()) {
      const std::size_t space = command.words.find(' ');
      condition = "__fish_seen_subcommand_from " + command.words.substr(0, space);
      if (space != std::string::npos) {
        condition += "; and __fish_seen_subcommand_from " + command.words.substr(space + 1);
      }
    }
    for (const std::string& name : command.subcommands) {
      const std::string words = command.words.empty() ? name : command.words + " " + name;
      const auto found =
          std::find_if(commands.begin(), commands.end(), [&](const Command& each) { return each.words == words; });
      text += fmt::format("complete -c tesser -f -n '{}' -a {} -d {}\n", condition, quoted(name), quoted(found->about));
    }
    for (const std::string& option : command.options) {
      text += fmt::format("complete -c tesser -n '{}' {} {}\n", condition, option.starts_with("--") ? "-l" : "-s",
                          option.substr(option.starts_with("--") ? 2 : 1));
    }
    if (command.takes_job) {
      text += fmt::format("complete -c tesser -f -n '{}' -a '({})'\n", condition, kJobs);
    }
  }
  return text;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("completion", "Write a script by which a shell completes tesser's commands");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(kExamples);
  command->callback([&app, shell, &action] {
    action = [&app, shell]() -> Result<int> {
      std::vector<Command> commands;
      collect(app, "", commands);
      print_output("{}", *shell == "bash"  ? bash_script(commands)
                         : *shell == "zsh" ? zsh_script(commands)
                                           : fish_script(commands));
      return 0;
    };
  });
}

}  // namespace tesser::cli
